//! The gradient of a convolution's weight.

use rayon::prelude::*;

use super::Plan;
use crate::cpu::buffers::Buffer;
use crate::cpu::convolution::Convolution;
use crate::cpu::instruction_set::InstructionSet;
use crate::cpu::slots::{groups, slots, sum};

impl Plan {
    /// The gradient of the weight for the output's gradient `dy` and images `x`.
    pub fn weight(&self, body: &dyn InstructionSet, dy: &[f32], x: &[f32]) -> Vec<f32> {
        let way = self.forward();
        if let Some(winograd) = way.wide() {
            return self.restored(body, &way, winograd.weight_batch(body, x, (self.delta, dy)));
        }
        let slots = slots(self.shape.n, 1, 1);
        let packed = way.gradient_floats();
        let mut parts = Buffer::stale(packed * slots.len());
        let (image, out_image) = (x.len() / self.shape.n, dy.len() / self.shape.n);
        parts.par_chunks_exact_mut(packed).zip(&slots).for_each(|(part, slot)| {
            let x = &x[slot.start * image..slot.end * image];
            let dy = &dy[slot.start * out_image..slot.end * out_image];
            self.slot_weight(body, &way, [x, dy], slot.len(), part);
        });
        self.restored(body, &way, sum(parts, packed))
    }

    /// The gradient of the weight, from that of its prepared form.
    fn restored(&self, body: &dyn InstructionSet, way: &Convolution, total: Buffer) -> Vec<f32> {
        let total = way.restore(body, total);
        let mut weight = vec![0.0; self.filter.len()];
        self.filter.unpack(body, &total, &way.taps, &mut weight);
        weight
    }

    /// What the images of one slot contribute.
    fn slot_weight(
        &self,
        body: &dyn InstructionSet,
        way: &Convolution,
        [x, dy]: [&[f32]; 2],
        count: usize,
        weight: &mut [f32],
    ) {
        let size = way.group().min(count);
        let mut scratch = way.scratch(1);
        let mut inputs = Buffer::zeros(size * self.from.image());
        let mut deltas = Buffer::zeros(size * self.delta.image());
        let (image, out_image) = (x.len() / count, dy.len() / count);
        for group in groups(count, size) {
            let span = |floats: usize| group.start * floats..group.end * floats;
            self.from.pack_all(body, &x[span(image)], &mut inputs);
            self.delta.pack_all(body, &dy[span(out_image)], &mut deltas);
            let inputs = &inputs[..group.len() * self.from.image()];
            let weight = (&mut *weight, group.start == 0);
            way.weight(body, inputs, (self.delta, &deltas), weight, &mut scratch);
        }
    }
}
