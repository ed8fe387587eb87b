//! CPU body of the convolution and of its two gradients, which keep the size up to the stride.
//!
//! Images are taken to the tiles of [`fewshot_simd`] and back a group at a time, so that a group
//! stays in the cache between its layouts.

#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;

use fewshot_simd::buffers::{Buffer, CowBuffer, zero_filled};
use fewshot_simd::convolution::{Convolution, Term};
use fewshot_simd::filter::Filter;
use fewshot_simd::instruction_set::InstructionSet;
use fewshot_simd::layout::Map;
use fewshot_simd::simd::even_parts;
use fewshot_simd::slots::{groups, slots, split, sum};
use fewshot_simd::winograd::Scratch;
use rayon::prelude::*;

use super::shape::{ConvShape, Role};
use crate::environment::chosen;

/// True if the body computes convolutions of this shape.
pub fn serves(shape: &ConvShape) -> bool {
    let ConvShape { kernel, stride, padding, .. } = *shape;
    let window = kernel == 2 * padding + 1 && kernel <= 7 && matches!(stride, 1 | 2);
    let pixels = shape.n * shape.c * shape.o * shape.h * shape.w;
    window && pixels > 0 && shape.lanes == 1
}

/// The derivative of `<dy, conv(x, w)>` by the operand `wanted`, given the two whose roles follow.
///
/// # Panics
/// If `shape` is not served, or a length does not fit it.
pub fn derivative(role: Role, shape: &ConvShape, operands: [&[f32]; 2]) -> Vec<f32> {
    derivative_with(chosen(), role, shape, operands)
}

fn derivative_with(
    body: &dyn InstructionSet,
    role: Role,
    shape: &ConvShape,
    [first, second]: [&[f32]; 2],
) -> Vec<f32> {
    assert!(serves(shape), "{shape:?}");
    let length = |role| shape.of(role).iter().product::<usize>();
    assert_eq!(first.len(), length(role.next()), "the first operand of {role:?}, {shape:?}");
    assert_eq!(second.len(), length(role.next().next()), "the second of {role:?}, {shape:?}");
    let plan = Plan::new(shape, body.tile());
    match role {
        Role::Output => plan.output(body, first, second),
        Role::Input => plan.input(body, first, second),
        Role::Weight => plan.weight(body, first, second),
    }
}

/// Channels of a single image's output that are worth a part of their own, where there are two parts: a part of few
/// repeats Winograd's transform of the input for little.
const CHANNELS: usize = 128;

/// An image in the layout of a map, tiles in parallel.
fn packed_image(body: &dyn InstructionSet, map: &Map, x: &[f32]) -> Buffer {
    // The ring stays zero.
    let mut image = Buffer::zeros(map.image());
    let planes = x.par_chunks(map.lane * map.h * map.w);
    image.par_chunks_mut(map.plane()).zip(planes).for_each(|(tile, planes)| {
        Map { channels: planes.len() / (map.h * map.w), ..*map }.pack(body, planes, tile);
    });
    image
}

/// The layouts of one convolution.
struct Plan {
    shape: ConvShape,
    filter: Filter,
    /// The input.
    from: Map,
    /// The output.
    to: Map,
    /// The gradient of the output.
    delta: Map,
    /// The gradient of the input.
    input: Map,
}

impl Plan {
    fn new(shape: &ConvShape, tile: usize) -> Self {
        let ConvShape { c, h, w, o, kernel, padding: ring, .. } = *shape;
        let [height, width] = shape.output_size();
        let map = |channels, lane, [h, w]: [usize; 2], ring| Map { channels, lane, h, w, ring };
        Self {
            shape: *shape,
            filter: Filter { o, i: c, side: kernel },
            from: map(c, tile.min(c), [h, w], ring),
            to: map(o, tile, [height, width], 0),
            delta: map(o, tile, [height, width], ring),
            input: map(c, tile, [h, w], 0),
        }
    }

    /// From the input to the output.
    fn forward(&self) -> Convolution {
        Convolution::new(&self.from, self.to, self.shape.stride, self.shape.n)
    }

    /// The output for images `x` and the weight `w`.
    fn output(&self, body: &dyn InstructionSet, x: &[f32], w: &[f32]) -> Vec<f32> {
        let way = self.forward();
        match self.shape.n == 1 && way.wide().is_none() {
            true => self.output_of_an_image(body, x, w),
            false => self.pass(body, way, w).run(x),
        }
    }

    /// The output for a single image, channels in two to four parts in parallel. Their number follows from the shape
    /// alone, for it may decide how sums are rounded.
    fn output_of_an_image(&self, body: &dyn InstructionSet, x: &[f32], w: &[f32]) -> Vec<f32> {
        let (shape, tile, tiles) = (&self.shape, self.to.lane, self.to.tiles());
        let image = packed_image(body, &self.from, x);
        let (plane, weights) = (self.to.h * self.to.w, w.len() / shape.o);
        let parts = (shape.o / CHANNELS).clamp(2, 4).min(tiles);
        let channels = even_parts(tiles, parts)
            .map(|[first, end]| first * tile..(end * tile).min(shape.o))
            .collect::<Vec<_>>();
        let mut out = Vec::with_capacity(shape.o * plane);
        let parts = split(&mut out.spare_capacity_mut()[..shape.o * plane], plane, &channels);
        parts.into_par_iter().zip(&channels).for_each(|(out, part)| {
            let w = &w[part.start * weights..part.end * weights];
            let plan = Plan::new(&ConvShape { o: part.len(), ..*shape }, tile);
            let pass = plan.pass(body, plan.forward(), w);
            let mut to = Buffer::stale(pass.to.image());
            pass.group(&image, &mut to, out, &mut pass.way.scratch(1));
        });
        // SAFETY: the parts are all channels, and each is written.
        unsafe { out.set_len(shape.o * plane) };
        out
    }

    /// The pass from images to their output, the [`forward`](Self::forward) way.
    fn pass<'a>(&self, body: &'a dyn InstructionSet, way: Convolution, w: &[f32]) -> Pass<'a> {
        let way = batched(way);
        let weight = way.prepare(body, self.filter.pack(body, w, &way.taps));
        Pass { body, way, weight, from: self.from, to: self.to }
    }

    /// The gradient of the input for the weight `w` and the output's gradient `dy`: the convolution
    /// of `dy` with the turned weight.
    fn input(&self, body: &dyn InstructionSet, w: &[f32], dy: &[f32]) -> Vec<f32> {
        let way = Convolution::turned(&self.delta, self.input, self.shape.stride, self.shape.n);
        let way = batched(way);
        let taps = [&*self.from.taps(), &way.taps];
        let weight = way.prepare(body, self.filter.pack_turned(body, w, taps));
        Pass { body, way, weight, from: self.delta, to: self.input }.run(dy)
    }

    /// The gradient of the weight for the output's gradient `dy` and images `x`.
    fn weight(&self, body: &dyn InstructionSet, dy: &[f32], x: &[f32]) -> Vec<f32> {
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
        let mut weight = vec![0.0; self.filter.weights()];
        self.filter.unpack(body, &total, &way.taps, &mut weight);
        weight
    }

    /// The share of the images of one slot.
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
            self.group(from, to, &mut out[span(out_image)], &mut scratch);
        }
    }

    /// Writes a group of images, of which `from` has the input in its layout and `to` is room for the output in its.
    fn group(
        &self,
        from: &[f32],
        to: &mut [f32],
        out: &mut [MaybeUninit<f32>],
        scratch: &mut Option<Scratch>,
    ) {
        let term = Term { weight: &self.weight, input: from };
        self.way.images(self.body, &[term], to, scratch);
        let packed = to.chunks_exact(self.to.image());
        for (packed, out) in packed.zip(out.chunks_exact_mut(self.to.dense())) {
            self.to.unpack(self.body, packed, zero_filled(out));
        }
    }
}
