//! One slot's images on their way through the stack.

use std::ops::Range;

use fewshot_simd::buffers::Buffer;
use fewshot_simd::images::{Images, SlotImages};
use fewshot_simd::instruction_set::InstructionSet;
use fewshot_simd::layout::Map;
use fewshot_simd::slots::split;
use fewshot_simd::winograd::Scratch;

use super::plan::Plan;

/// A slot's parts of maps, or of their tangents, and its working memory.
pub struct SlotRun<'a> {
    /// The images of the batch.
    pub images: Range<usize>,
    /// Inputs of all blocks, then the output.
    pub inputs: Vec<SlotImages<'a>>,
    pub convs: Vec<SlotImages<'a>>,
    /// The output `[n, c, h, w]`.
    y: &'a mut [f32],
    pub strip: Buffer,
    pub scratch: Vec<Option<Scratch>>,
}

impl<'a> SlotRun<'a> {
    /// The runs of all slots.
    pub fn all(
        plans: &[Plan],
        slots: &[Range<usize>],
        inputs: &'a mut [Images],
        convs: &'a mut [Images],
        y: &'a mut [f32],
    ) -> Vec<Self> {
        let last = plans.last().expect("a stack has blocks");
        let strip = plans.iter().map(Plan::strip_len).max().unwrap_or(0);
        let mut inputs: Vec<_> = inputs.iter_mut().map(|i| i.split(slots).into_iter()).collect();
        let mut convs: Vec<_> = convs.iter_mut().map(|i| i.split(slots).into_iter()).collect();
        let run = |(images, y): (&Range<usize>, _)| Self {
            images: images.clone(),
            inputs: inputs.iter_mut().filter_map(Iterator::next).collect(),
            convs: convs.iter_mut().filter_map(Iterator::next).collect(),
            y,
            strip: Buffer::stale(strip),
            scratch: plans.iter().map(|_| None).collect(),
        };
        slots.iter().zip(split(y, last.out.dense(), slots)).map(run).collect()
    }

    /// Copies image `i` of the slot to the input of the first block, from all images `[n, c, h, w]`.
    pub fn pack_input(&mut self, body: &dyn InstructionSet, map: Map, i: usize, all: &[f32]) {
        let start = (self.images.start + i) * map.dense();
        let to = self.inputs[0].get_mut(i);
        map.clear_ring(to);
        map.pack(body, &all[start..start + map.dense()], to);
    }

    /// Copies the output of images of the slot to where it is returned.
    pub fn unpack_output(&mut self, body: &dyn InstructionSet, map: Map, group: Range<usize>) {
        let output = &self.inputs[self.convs.len()];
        for i in group {
            map.unpack(body, output.get(i), &mut self.y[i * map.dense()..(i + 1) * map.dense()]);
        }
    }
}
