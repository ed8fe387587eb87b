//! The weight of a convolution and its packed forms.

use rayon::prelude::*;

use super::buffers::Buffer;
use super::instruction_set::InstructionSet;
use super::layout::Tap;

/// Shape of a weight `[o, i, side, side]`.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// Output channels.
    pub o: usize,
    /// Input channels.
    pub i: usize,
    /// Side of the window.
    pub side: usize,
}

impl Filter {
    /// Number of weights.
    pub fn len(&self) -> usize {
        self.o * self.i * self.side * self.side
    }

    /// The weight for the convolution: `[o tiles, taps, tile]`.
    pub fn pack(&self, body: &dyn InstructionSet, weight: &[f32], taps: &[Tap]) -> Buffer {
        let (tile, row) = (body.tile(), self.i * self.area());
        let places = self.places(taps, self.i, |at| at, tile);
        let mut packed = Buffer::stale(self.o.div_ceil(tile) * taps.len() * tile);
        each_tile(
            packed.chunks_exact_mut(taps.len() * tile).enumerate(),
            self.len(),
            |(k, packed)| {
                place(body, (&weight[k * tile * row..], self.o - k * tile), &places, packed);
            },
        );
        packed
    }

    /// The weight for the gradient of the input, `[i tiles, taps, tile]`: the window turned by 180
    /// degrees, over the output's channels.
    pub fn pack_turned(&self, body: &dyn InstructionSet, weight: &[f32], taps: &[Tap]) -> Buffer {
        let (tile, area) = (body.tile(), self.area());
        let turned = |at: [usize; 2]| at.map(|at| self.side - 1 - at);
        let places = self.places(taps, self.o, turned, tile);
        let mut packed = Buffer::stale(self.i.div_ceil(tile) * taps.len() * tile);
        each_tile(
            packed.chunks_exact_mut(taps.len() * tile).enumerate(),
            self.len(),
            |(k, packed)| {
                for (o, places) in places.chunks(area).enumerate() {
                    let weight = &weight[(o * self.i + k * tile) * area..];
                    place(body, (weight, self.i - k * tile), places, packed);
                }
            },
        );
        packed
    }

    /// Copies a packed gradient `[o tiles, taps, tile]` into `weight`.
    pub fn unpack(
        &self,
        body: &dyn InstructionSet,
        packed: &[f32],
        taps: &[Tap],
        weight: &mut [f32],
    ) {
        let (tile, row) = (body.tile(), self.i * self.area());
        let places = self.places(taps, self.i, |at| at, tile);
        let tiles = packed.chunks_exact(taps.len() * tile);
        each_tile(tiles.zip(weight.chunks_mut(tile * row)), self.len(), |(packed, planes)| {
            if planes.len() == tile * row {
                return body.separate_at(packed, &places, planes);
            }
            for (lane, plane) in planes.chunks_exact_mut(row).enumerate() {
                plane.iter_mut().zip(&places).for_each(|(to, place)| *to = packed[place + lane]);
            }
        });
    }

    /// Positions in the window.
    fn area(&self) -> usize {
        self.side * self.side
    }

    /// Where the weight of every channel and position, as `turned`, lies in a packed tile.
    fn places(
        &self,
        taps: &[Tap],
        channels: usize,
        turned: impl Fn([usize; 2]) -> [usize; 2],
        tile: usize,
    ) -> Vec<usize> {
        let mut places = vec![0; channels * self.area()];
        for (k, tap) in taps.iter().enumerate() {
            let [row, column] = turned(tap.at);
            places[tap.channel * self.area() + row * self.side + column] = k * tile;
        }
        places
    }
}

/// Weights from which tiles are worth a task each.
const LARGE: usize = 1 << 18;

/// Works on every tile of so many weights.
fn each_tile<T: Send>(
    tiles: impl Iterator<Item = T>,
    weights: usize,
    work: impl Fn(T) + Sync + Send,
) {
    if weights < LARGE {
        return tiles.for_each(work);
    }
    tiles.collect::<Vec<_>>().into_par_iter().for_each(work);
}

/// Writes the first `count` planes, at most a tile of them, to their lanes, and zeros to the lanes
/// without one.
fn place(
    body: &dyn InstructionSet,
    (planes, count): (&[f32], usize),
    places: &[usize],
    packed: &mut [f32],
) {
    if count >= body.tile() {
        return body.interleave_at(planes, places, packed);
    }
    for (position, &place) in places.iter().enumerate() {
        let lanes = &mut packed[place..place + body.tile()];
        lanes.fill(0.0);
        let plane = planes[position..].iter().step_by(places.len());
        lanes.iter_mut().zip(plane.take(count)).for_each(|(lane, value)| *lane = *value);
    }
}
