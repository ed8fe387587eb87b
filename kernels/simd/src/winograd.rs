//! Winograd's convolution over the images of a slot.

use std::ops::Range;

use rayon::prelude::*;

use super::buffers::Buffer;
use super::contract::{Contraction, RowOffsets, Run};
use super::convolution::Term;
use super::instruction_set::InstructionSet;
use super::layout::Map;
use super::transforms::{Corner, CornerMut, PRODUCTS};

/// 4x4 tiles of pixels transformed together: their products fit the L2 cache.
const PATCHES: usize = 48;

/// Floats between the products of a transform beyond their length. Powers of two would put all of
/// them in one set of the L1 cache.
pub(super) const SKEW: usize = 16;

/// Cost of the transforms of a weight and of its gradient, in products.
const EXPANSION: usize = 800;

/// Channels from which the transforms pay.
const CHANNELS: usize = 32;

/// Most patches of the images that are convolved at once, which bounds the memory that they take.
const MOST_PATCHES: usize = 2048;

/// A 3x3 convolution with stride 1 from one map, with a ring, to another, without.
pub struct Winograd {
    pub(super) input: Map,
    pub(super) out: Map,
    /// Images that [`convolve_batch`](Self::convolve_batch) takes at once.
    pub(super) batch: usize,
}

/// Room for the products of patches that are transformed together, or for operands and products of AMX.
pub struct Scratch {
    /// Transformed input of every term, `[products, patches, channels]`.
    pub(super) inputs: Vec<Buffer>,
    /// Products of one tile of the output, `[products, patches, lanes]`.
    pub(super) out: Buffer,
}

impl Scratch {
    /// Buffers of these lengths, the last for products; none without a length.
    pub fn new(lengths: &[usize]) -> Option<Self> {
        let (out, inputs) = lengths.split_last()?;
        let inputs = inputs.iter().copied().map(Buffer::stale).collect();
        Some(Self { inputs, out: Buffer::stale(*out) })
    }
}

impl Winograd {
    pub(super) fn new(input: Map, out: Map) -> Self {
        let patches = out.h.div_ceil(4) * out.w.div_ceil(4);
        Self { input, out, batch: (MOST_PATCHES / patches).max(1) }
    }

    /// The convolution of so many images from `input` to `out`, if it is faster than the direct one.
    pub fn pays(input: Map, out: Map, stride: usize, images: usize) -> Option<Self> {
        let this = Self::new(input, out);
        let wide = input.channels >= CHANNELS && out.channels >= CHANNELS;
        // The direct convolution needs nine products a pixel but no transforms.
        let products = 5 * PRODUCTS * this.patches() * images + 3 * EXPANSION;
        let fewer = products <= 3 * 9 * out.h * out.w * images;
        let three = input.window() == 3;
        (three && stride == 1 && input.lane == out.lane && wide && fewer).then_some(this)
    }

    /// Patches of an image.
    pub(super) fn patches(&self) -> usize {
        self.out.h.div_ceil(4) * self.out.w.div_ceil(4)
    }

    /// Images that fill the patches transformed together.
    pub fn group(&self) -> usize {
        (PATCHES / self.patches()).max(1)
    }

    pub(super) fn padded(&self) -> usize {
        self.input.tiles() * self.input.lane
    }

    fn steps(&self) -> (usize, usize) {
        (PATCHES * self.padded() + SKEW, PATCHES * self.out.lane + SKEW)
    }

    /// Lengths of the buffers for [`convolve`](Self::convolve) of so many terms and
    /// [`weight`](Self::weight).
    pub fn scratch_lengths(&self, terms: usize) -> Vec<usize> {
        let (input, out) = self.steps();
        [vec![PRODUCTS * input; terms], vec![PRODUCTS * out]].concat()
    }

    /// Length of the expanded weight.
    pub fn expanded(&self) -> usize {
        self.out.tiles() * PRODUCTS * self.input.channels * self.out.lane
    }

    /// Image, row and column of a patch.
    pub(super) fn place(&self, patch: usize) -> (usize, usize, usize) {
        let columns = self.out.w.div_ceil(4);
        let (image, patch) = (patch / self.patches(), patch % self.patches());
        (image, 4 * (patch / columns), 4 * (patch % columns))
    }

    /// Packed weights `[o tiles, taps, lanes]` to `[o tiles, products, channels, lanes]`.
    pub fn expand(&self, body: &dyn InstructionSet, packed: &[f32]) -> Buffer {
        let (lane, channels) = (self.out.lane, self.input.channels);
        let mut expanded = Buffer::stale(self.expanded());
        let tiles = expanded.par_chunks_exact_mut(PRODUCTS * channels * lane);
        tiles.zip(packed.par_chunks_exact(9 * channels * lane)).for_each(|(expanded, packed)| {
            for c in 0..channels {
                let (first, step) = self.input.tap(c);
                let from = (&packed[first * lane..], step * lane);
                body.expand_weight(from, (&mut expanded[c * lane..], channels * lane));
            }
        });
        expanded
    }

    /// The gradient of the expanded weight to that of the packed weight.
    pub fn reduce(&self, body: &dyn InstructionSet, expanded: &[f32]) -> Buffer {
        let (lane, channels) = (self.out.lane, self.input.channels);
        let mut packed = Buffer::stale(self.out.tiles() * 9 * channels * lane);
        let tiles = packed.par_chunks_exact_mut(9 * channels * lane);
        let expanded = expanded.par_chunks_exact(PRODUCTS * channels * lane);
        tiles.zip(expanded).for_each(|(packed, expanded)| {
            for c in 0..channels {
                let (first, step) = self.input.tap(c);
                let to = (&mut packed[first * lane..], step * lane);
                body.reduce_weight((&expanded[c * lane..], channels * lane), to);
            }
        });
        packed
    }

    /// The patches of so many images, a group at a time.
    fn groups(&self, images: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let all = images * self.patches();
        (0..all).step_by(PATCHES).map(move |start| start..(start + PATCHES).min(all))
    }

    /// Expands patches of packed images, product `k` to `to[k * step]`.
    pub(super) fn expand_inputs(
        &self,
        body: &dyn InstructionSet,
        inputs: &[f32],
        patches: Range<usize>,
        (to, step): (&mut [f32], usize),
    ) {
        let map = self.input;
        for (i, patch) in patches.enumerate() {
            let (image, row, column) = self.place(patch);
            let corner = Corner {
                data: &inputs[image * map.image() + row * map.row() + column * map.lane..],
                plane: map.plane(),
                row: map.row(),
                tiles: map.tiles(),
                left: [map.h + 2 - row, map.w + 2 - column],
            };
            body.expand_input(&corner, &mut to[i * self.padded()..], step);
        }
    }

    /// Convolves a group of images with the expanded weight: the sum over `terms`.
    pub fn convolve(
        &self,
        body: &dyn InstructionSet,
        terms: &[Term<'_>],
        outputs: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let (lane, channels) = (self.out.lane, self.input.channels);
        let (step, out_step) = self.steps();
        let runs = [Run { a: 0, b: 0, len: channels }];
        for patches in self.groups(outputs.len() / self.out.image()) {
            for (term, to) in terms.iter().zip(&mut scratch.inputs) {
                self.expand_inputs(body, term.input, patches.clone(), (to, step));
            }
            let rows: Vec<usize> = (0..patches.len()).map(|i| i * self.padded()).collect();
            for tile in 0..self.out.tiles() {
                for k in 0..PRODUCTS {
                    let start = (tile * PRODUCTS + k) * channels * lane;
                    let out = &mut scratch.out[k * out_step..][..rows.len() * lane];
                    for (i, (term, input)) in terms.iter().zip(&scratch.inputs).enumerate() {
                        let job = Contraction {
                            a: &input[k * step..],
                            rows: &rows,
                            b: &term.weight[start..start + channels * lane],
                            runs: &runs,
                            a_step: 1,
                            b_step: lane,
                            to: RowOffsets::Strided(lane),
                            accumulate: i > 0,
                        };
                        body.contract(&job, out);
                    }
                }
                for (i, patch) in patches.clone().enumerate() {
                    let (image, row, column) = self.place(patch);
                    let start = image * self.out.image() + self.out.start(tile, row);
                    let to = CornerMut {
                        data: &mut outputs[start + column * lane..],
                        row: self.out.row(),
                        left: [self.out.h - row, self.out.w - column],
                    };
                    body.reduce_output(&scratch.out[i * lane..], out_step, to);
                }
            }
        }
    }

    /// The corner of a patch in one tile of packed gradients of the output.
    pub(super) fn corner<'a>(
        &self,
        delta: &Map,
        deltas: &'a [f32],
        tile: usize,
        patch: usize,
    ) -> Corner<'a> {
        let (image, row, column) = self.place(patch);
        let start = image * delta.image() + delta.start(tile, row) + column * delta.lane;
        let left = [delta.h - row, delta.w - column];
        Corner { data: &deltas[start..], plane: 0, row: delta.row(), tiles: 1, left }
    }

    /// Adds to the gradient of the expanded weight what a group of images contributes, or replaces
    /// it if they are the first; `deltas` are the gradients of their outputs, in the map `delta`
    /// with a ring.
    pub fn weight(
        &self,
        body: &dyn InstructionSet,
        inputs: &[f32],
        (delta, deltas): (Map, &[f32]),
        (weight, first): (&mut [f32], bool),
        scratch: &mut Scratch,
    ) {
        let (lane, channels) = (self.out.lane, self.input.channels);
        let (step, out_step) = self.steps();
        let rows: Vec<usize> = (0..channels).collect();
        for patches in self.groups(inputs.len() / self.input.image()) {
            self.expand_inputs(body, inputs, patches.clone(), (&mut scratch.inputs[0], step));
            let runs = [Run { a: 0, b: 0, len: patches.len() }];
            for (tile, weight) in weight.chunks_exact_mut(PRODUCTS * channels * lane).enumerate() {
                for (i, patch) in patches.clone().enumerate() {
                    let corner = self.corner(&delta, deltas, tile, patch);
                    body.expand_delta(&corner, &mut scratch.out[i * lane..], out_step);
                }
                for (k, weight) in weight.chunks_exact_mut(channels * lane).enumerate() {
                    let job = Contraction {
                        a: &scratch.inputs[0][k * step..],
                        rows: &rows,
                        b: &scratch.out[k * out_step..],
                        runs: &runs,
                        a_step: self.padded(),
                        b_step: lane,
                        to: RowOffsets::Strided(lane),
                        accumulate: !first || patches.start > 0,
                    };
                    body.contract(&job, weight);
                }
            }
        }
    }
}
