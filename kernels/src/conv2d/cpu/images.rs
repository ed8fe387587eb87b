//! Images through a convolution: the output, and the gradient of the input.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use super::Plan;
use crate::cpu::buffers::{Buffer, CowBuffer, zero_filled};
use crate::cpu::convolution::{Convolution, Term};
use crate::cpu::instruction_set::InstructionSet;
use crate::cpu::layout::Map;
use crate::cpu::slots::{groups, slots, split};

impl Plan {
    /// The output for images `x` and the weight `w`.
    pub fn output(&self, body: &dyn InstructionSet, x: &[f32], w: &[f32]) -> Vec<f32> {
        let way = batched(self.forward());
        let weight = way.prepare(body, self.filter.pack(body, w, &way.taps));
        Pass { body, way, weight, from: self.from, to: self.to }.run(x)
    }

    /// The gradient of the input for the weight `w` and the output's gradient `dy`: the convolution
    /// of `dy` with the turned weight.
    pub fn input(&self, body: &dyn InstructionSet, w: &[f32], dy: &[f32]) -> Vec<f32> {
        let way = Convolution::turned(&self.delta, self.input, self.shape.stride, self.shape.n);
        let way = batched(way);
        let taps = [&*self.from.taps(), &way.taps];
        let weight = way.prepare(body, self.filter.pack_turned(body, w, taps));
        Pass { body, way, weight, from: self.delta, to: self.input }.run(dy)
    }
}

/// With the pixels of as many images as it takes together.
fn batched(way: Convolution) -> Convolution {
    let images = way.group();
    way.with_batch(images)
}

/// A convolution from images to images.
struct Pass<'a> {
    body: &'a dyn InstructionSet,
    way: Convolution,
    weight: CowBuffer<'a>,
    from: Map,
    to: Map,
}

impl Pass<'_> {
    fn run(&self, images: &[f32]) -> Vec<f32> {
        if let Some(winograd) = self.way.wide() {
            return winograd.convolve_batch(self.body, images, &self.weight);
        }
        let (image, out_image) = (self.from.dense(), self.to.dense());
        let (slots, len) = (slots(images.len() / image, 1, 1), images.len() / image * out_image);
        let mut out = Vec::with_capacity(len);
        let parts = split(&mut out.spare_capacity_mut()[..len], out_image, &slots);
        parts.into_par_iter().zip(&slots).for_each(|(out, slot)| {
            self.slot(&images[slot.start * image..slot.end * image], out, slot.len());
        });
        // SAFETY: the images of all slots are written.
        unsafe { out.set_len(len) };
        out
    }

    /// Writes all images of one slot.
    fn slot(&self, images: &[f32], out: &mut [MaybeUninit<f32>], count: usize) {
        let size = self.way.group().min(count);
        let mut scratch = self.way.scratch(1);
        // The ring stays zero.
        let mut from = Buffer::zeros(size * self.from.image());
        let mut to = Buffer::stale(size * self.to.image());
        let (image, out_image) = (images.len() / count, out.len() / count);
        for group in groups(count, size) {
            let span = |floats: usize| group.start * floats..group.end * floats;
            let from = &mut from[..group.len() * self.from.image()];
            let to = &mut to[..group.len() * self.to.image()];
            self.from.pack_all(self.body, &images[span(image)], from);
            let term = Term { weight: &self.weight, input: from };
            self.way.images(self.body, &[term], to, &mut scratch);
            let packed = to.chunks_exact(self.to.image());
            for (packed, out) in packed.zip(out[span(out_image)].chunks_exact_mut(out_image)) {
                self.to.unpack(self.body, packed, zero_filled(out));
            }
        }
    }
}
