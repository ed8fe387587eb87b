//! The weight of a convolution and its packed forms.

use std::iter;

use rayon::prelude::*;

use super::buffers::Buffer;
use super::instruction_set::InstructionSet;
use super::layout::Tap;

/// Shape of a weight `[o, i, side, side]`, of `o` output channels and `i` input channels.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// Output channels.
    pub o: usize,
    /// Input channels.
    pub i: usize,
    /// Height and width of the window.
    pub side: usize,
}

impl Filter {
    /// Number of weights.
    #[inline]
    pub fn weights(&self) -> usize {
        self.o * self.i * self.side * self.side
    }

    /// The weight for the convolution: `[o tiles, taps, tile]`.
    pub fn pack(&self, body: &dyn InstructionSet, weight: &[f32], taps: &[Tap]) -> Buffer {
        let (tile, row) = (body.tile(), self.i * self.area());
        let places = self.places(taps, self.i, |at| at, tile);
        let mut packed = Buffer::stale(self.o.div_ceil(tile) * taps.len() * tile);
        each_tile(
            packed.chunks_exact_mut(taps.len() * tile).enumerate(),
            self.weights(),
            |(k, packed)| {
                place(body, (&weight[k * tile * row..], self.o - k * tile), &places, packed);
            },
        );
        packed
    }

    /// The weight for the gradient of the input, `[i tiles, taps, tile]`: the window turned by 180
    /// degrees, over the output's channels. From [`pack`](Self::pack) with `taps`, for the taps `turned`.
    pub fn turn(
        &self,
        body: &dyn InstructionSet,
        packed: &[f32],
        [taps, turned]: [&[Tap]; 2],
    ) -> Buffer {
        let (tile, area) = (body.tile(), self.area());
        let from = self.places(taps, self.i, |at| at, tile);
        let to = self.places(turned, self.o, |at| at.map(|at| self.side - 1 - at), tile);
        let mut out = Buffer::stale(self.i.div_ceil(tile) * turned.len() * tile);
        let tiles = out.chunks_exact_mut(turned.len() * tile).enumerate();
        each_tile(tiles, self.weights(), |(i, out)| {
            // The channels of a tile are adjacent at each position, on both sides.
            for (o, packed) in packed.chunks_exact(taps.len() * tile).enumerate() {
                for position in 0..area {
                    let from = &packed[from[i * tile * area + position]..];
                    let to = &mut out[to[o * tile * area + position]..];
                    turn_tile(body, [self.i - i * tile, self.o - o * tile], from, to);
                }
            }
        });
        out
    }

    /// The weight for the gradient of the input, from one that is not packed.
    pub fn pack_turned(
        &self,
        body: &dyn InstructionSet,
        weight: &[f32],
        [taps, turned]: [&[Tap]; 2],
    ) -> Buffer {
        self.turn(body, &self.pack(body, weight, taps), [taps, turned])
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
        each_tile(tiles.zip(weight.chunks_mut(tile * row)), self.weights(), |(packed, planes)| {
            if planes.len() == tile * row {
                return body.separate(packed, &places, planes);
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

/// Transposes a tile, from a row for each input channel to a row for each output channel, with zeros where there is no
/// input channel. `channels` are those of input and output that are left, of which a tile is written at most.
fn turn_tile(body: &dyn InstructionSet, channels: [usize; 2], from: &[f32], to: &mut [f32]) {
    let tile = body.tile();
    let [rows, columns] = channels.map(|channels| channels.min(tile));
    if rows == tile && columns == tile {
        return body.transposed(&from[..tile * tile], tile, &mut to[..tile * tile]);
    }
    for (column, to) in to.chunks_exact_mut(tile).take(columns).enumerate() {
        let values = from[column..].iter().step_by(tile).take(rows).copied();
        to.iter_mut().zip(values.chain(iter::repeat(0.0))).for_each(|(to, value)| *to = value);
    }
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
        return body.interleave(planes, places, packed);
    }
    for (position, &place) in places.iter().enumerate() {
        let lanes = &mut packed[place..place + body.tile()];
        lanes.fill(0.0);
        let plane = planes[position..].iter().step_by(places.len());
        lanes.iter_mut().zip(plane.take(count)).for_each(|(lane, value)| *lane = *value);
    }
}

#[cfg(test)]
mod tests {
    use super::Filter;
    use crate::convolution::Convolution;
    use crate::instruction_set::bodies;
    use crate::integers;
    use crate::layout::Map;

    /// Every weight lies at its tap, for its channel on either side, and zeros where there is none.
    #[test]
    fn turned_weights_lie_where_taps_read_them() {
        for body in bodies() {
            let lane = body.tile();
            for ((o, i), stride) in
                [(1, 3), (lane, lane), (lane + 5, 2 * lane), (2 * lane, lane - 1)]
                    .into_iter()
                    .flat_map(|channels| [1, 2].map(|stride| (channels, stride)))
            {
                let filter = Filter { o, i, side: 3 };
                let weight = integers(filter.weights(), 3);
                let map = |channels, ring| Map { channels, lane, h: 6, w: 5, ring };
                let taps = map(i, 1).taps();
                let turned = Convolution::turned(&map(o, 1), map(i, 0), stride, 2).taps;
                let packed = filter.pack_turned(body, &weight, [&taps, &turned]);
                for (at, &packed) in packed.iter().enumerate() {
                    let (channel, tap) = (at / (turned.len() * lane) * lane + at % lane, at / lane);
                    let tap = turned[tap % turned.len()];
                    let [row, column] = tap.at.map(|at| 2 - at);
                    let place = ((tap.channel * i + channel) * 3 + row) * 3 + column;
                    let expected = if channel < i { weight[place] } else { 0.0 };
                    assert_eq!(packed, expected, "{} {filter:?}, stride {stride}", body.name());
                }
            }
        }
    }
}
