//! The flat parameters, block by block, and their packed forms.

use super::shape::Geometry;
use crate::cpu::buffers::Buffer;
use crate::cpu::layout::Tap;

/// Parameters of one block.
#[derive(Clone, Copy)]
pub struct Parameters<'a> {
    /// `[o, i, 3, 3]`
    pub weight: &'a [f32],
    /// `[o]`
    pub bias: &'a [f32],
    /// `[o]`
    pub gamma: &'a [f32],
    /// `[o]`
    pub beta: &'a [f32],
}

impl<'a> Parameters<'a> {
    /// The parameters of every block.
    pub fn split(blocks: &[Geometry], mut flat: &'a [f32]) -> Vec<Self> {
        let wanted: usize = blocks.iter().map(Geometry::parameters).sum();
        assert_eq!(flat.len(), wanted, "the stack's parameters");
        let mut take = |len: usize| flat.split_off(..len).expect("the length was checked");
        blocks
            .iter()
            .map(|block| {
                let weight = take(block.weight());
                let [bias, gamma, beta] = [(); 3].map(|()| take(block.c_out));
                Self { weight, bias, gamma, beta }
            })
            .collect()
    }

    /// The weight for the convolution: `[o tiles, taps, tile]`.
    pub fn pack(&self, block: &Geometry, taps: &[Tap], tile: usize) -> Buffer {
        let mut packed = Buffer::zeros(block.c_out.div_ceil(tile) * taps.len() * tile);
        for o in 0..block.c_out {
            let start = o / tile * taps.len() * tile + o % tile;
            for (k, tap) in taps.iter().enumerate() {
                packed[start + k * tile] = self.weight[position(block, o, tap.channel, tap.at)];
            }
        }
        packed
    }

    /// The weight for the gradient of the input, `[i tiles, taps, tile]`: the window turned by 180
    /// degrees, over the output's channels.
    pub fn pack_turned(&self, block: &Geometry, taps: &[Tap], tile: usize) -> Buffer {
        let mut packed = Buffer::zeros(block.c_in.div_ceil(tile) * taps.len() * tile);
        for i in 0..block.c_in {
            let start = i / tile * taps.len() * tile + i % tile;
            for (k, tap) in taps.iter().enumerate() {
                let turned = tap.at.map(|at| 2 - at);
                packed[start + k * tile] = self.weight[position(block, tap.channel, i, turned)];
            }
        }
        packed
    }
}

/// Copies a packed gradient `[o tiles, taps, tile]` into `weight [o, i, 3, 3]`.
pub fn unpack(packed: &[f32], block: &Geometry, taps: &[Tap], tile: usize, weight: &mut [f32]) {
    for o in 0..block.c_out {
        let start = o / tile * taps.len() * tile + o % tile;
        for (k, tap) in taps.iter().enumerate() {
            weight[position(block, o, tap.channel, tap.at)] = packed[start + k * tile];
        }
    }
}

fn position(block: &Geometry, o: usize, i: usize, [row, column]: [usize; 2]) -> usize {
    ((o * block.c_in + i) * 3 + row) * 3 + column
}
