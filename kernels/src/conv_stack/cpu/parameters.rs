//! The flat parameters, block by block, and their packed forms.

use super::shape::Geometry;
use crate::cpu::buffers::Buffer;
use crate::cpu::filter::Filter;
use crate::cpu::instruction_set::InstructionSet;
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
    pub fn pack(&self, body: &dyn InstructionSet, block: &Geometry, taps: &[Tap]) -> Buffer {
        filter(block).pack(body, self.weight, taps)
    }

    /// The weight for the gradient of the input, `[i tiles, taps, tile]`: the window turned by 180
    /// degrees, over the output's channels.
    pub fn pack_turned(&self, body: &dyn InstructionSet, block: &Geometry, taps: &[Tap]) -> Buffer {
        filter(block).pack_turned(body, self.weight, taps)
    }
}

/// Copies a packed gradient `[o tiles, taps, tile]` into `weight [o, i, 3, 3]`.
pub fn unpack(
    body: &dyn InstructionSet,
    packed: &[f32],
    block: &Geometry,
    taps: &[Tap],
    weight: &mut [f32],
) {
    filter(block).unpack(body, packed, taps, weight);
}

fn filter(block: &Geometry) -> Filter {
    Filter { o: block.c_out, i: block.c_in, side: 3 }
}
