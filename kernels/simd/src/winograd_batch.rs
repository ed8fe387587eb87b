//! Winograd's convolution over all images of a batch at once.
//!
//! A wide layer's expanded weight is larger than a cache. Here it is read once for a batch, and its gradient written
//! once: a task is one product and one tile of output channels, over all images.

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use super::buffers::{Buffer, in_parts, zero_filled};
use super::contract::{Contraction, RowOffsets, Run};
use super::instruction_set::InstructionSet;
use super::layout::Map;
use super::slots::groups;
use super::transforms::{CornerMut, PRODUCTS};
use super::winograd::{SKEW, Winograd};

/// Products of input and output channels from which all images are taken at once.
const WIDE: usize = 200 * 200;

/// Expanded patches of some images, a group of images after the other.
struct Expanded {
    data: Buffer,
    /// Patches of every group.
    groups: Vec<Range<usize>>,
    /// Floats of a group, and of one of its products.
    steps: [usize; 2],
}

impl Winograd {
    /// True if all images are taken at once.
    pub fn is_wide(&self) -> bool {
        self.input.channels * self.out.channels >= WIDE
    }

    /// Convolves images `[n, c, h, w]` with the expanded weight, to images.
    pub fn convolve_batch(
        &self,
        body: &dyn InstructionSet,
        images: &[f32],
        weight: &[f32],
    ) -> Vec<f32> {
        let parts = images.chunks(self.batch * self.input.dense());
        let mut parts = parts.map(|images| self.convolve_at_once(body, images, weight));
        let mut all = parts.next().unwrap_or_default();
        parts.for_each(|part| all.extend(part));
        all
    }

    fn convolve_at_once(
        &self,
        body: &dyn InstructionSet,
        images: &[f32],
        weight: &[f32],
    ) -> Vec<f32> {
        let (lane, channels, tiles) = (self.out.lane, self.input.channels, self.out.tiles());
        let inputs = self.expanded_inputs(body, images);
        let count = images.len() / self.input.dense();
        let step = count * self.patches() * lane + SKEW;
        let mut products = Buffer::stale(PRODUCTS * tiles * step);
        let place = |k: usize| {
            let group = |(group, patches): (usize, &Range<usize>)| {
                let start = inputs.start(group, k);
                (0..patches.len()).map(move |i| start + i * self.padded())
            };
            inputs.groups.iter().enumerate().flat_map(group).collect()
        };
        let rows: Vec<Vec<usize>> = (0..PRODUCTS).map(place).collect();
        // The tiles of a product one after the other: its inputs stay in the cache.
        products.par_chunks_exact_mut(step).enumerate().for_each(|(at, out)| {
            let (k, tile) = (at / tiles, at % tiles);
            let start = (tile * PRODUCTS + k) * channels * lane;
            let job = Contraction {
                a: &inputs.data,
                rows: &rows[k],
                b: &weight[start..start + channels * lane],
                runs: &[Run { a: 0, b: 0, len: channels }],
                a_step: 1,
                b_step: lane,
                to: RowOffsets::Strided(lane),
                accumulate: false,
            };
            body.contract(&job, &mut out[..step - SKEW]);
        });
        let image = self.out.dense();
        let write = |_: &(), [image, _]: [usize; 2], out: &mut [MaybeUninit<f32>]| {
            let mut map = Buffer::stale(self.out.image());
            for patch in 0..self.patches() {
                let (_, row, column) = self.place(patch);
                for tile in 0..tiles {
                    let start = tile * step + (image * self.patches() + patch) * lane;
                    let to = CornerMut {
                        data: &mut map[self.out.start(tile, row) + column * lane..],
                        row: self.out.row(),
                        left: [self.out.h - row, self.out.w - column],
                    };
                    body.reduce_output(&products[start..], tiles * step, to);
                }
            }
            self.out.unpack(body, &map, zero_filled(out));
        };
        // SAFETY: zeros are written where nothing else is.
        unsafe { in_parts(count, [image, image], |_| (), write) }
    }

    /// The gradient of the expanded weight by images `[n, c, h, w]` and the gradients of their outputs, which
    /// have the map `delta`.
    pub fn weight_batch(
        &self,
        body: &dyn InstructionSet,
        images: &[f32],
        (delta, deltas): (Map, &[f32]),
    ) -> Buffer {
        let (lane, channels, tiles) = (self.out.lane, self.input.channels, self.out.tiles());
        let mut weight = Buffer::stale(self.expanded());
        let images = images.chunks(self.batch * self.input.dense());
        let deltas = deltas.chunks(self.batch * delta.dense());
        for (part, (images, deltas)) in images.zip(deltas).enumerate() {
            let inputs = self.expanded_inputs(body, images);
            let deltas = self.expanded_deltas(body, delta, deltas);
            let rows: Vec<usize> = (0..channels).collect();
            let chunks = weight.chunks_exact_mut(channels * lane).enumerate();
            let mut tasks: Vec<_> = chunks.collect();
            // As in the convolution.
            tasks.sort_by_key(|(at, _)| (at % PRODUCTS, at / PRODUCTS));
            tasks.into_par_iter().for_each(|(at, weight)| {
                let (k, tile) = (at % PRODUCTS, at / PRODUCTS);
                let run = |(group, patches): (usize, &Range<usize>)| Run {
                    a: inputs.start(group, k),
                    b: deltas.start(group * tiles + tile, k),
                    len: patches.len(),
                };
                let runs: Vec<_> = inputs.groups.iter().enumerate().map(run).collect();
                let job = Contraction {
                    a: &inputs.data,
                    rows: &rows,
                    b: &deltas.data,
                    runs: &runs,
                    a_step: self.padded(),
                    b_step: lane,
                    to: RowOffsets::Strided(lane),
                    accumulate: part > 0,
                };
                body.contract(&job, weight);
            });
        }
        weight
    }

    /// The groups of so many images, and the patches of each.
    fn grouped(&self, count: usize) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
        let images: Vec<_> = groups(count, self.group().min(count)).collect();
        let patches =
            |images: &Range<usize>| images.start * self.patches()..images.end * self.patches();
        let patches = images.iter().map(patches).collect();
        (images, patches)
    }

    fn expanded_inputs(&self, body: &dyn InstructionSet, images: &[f32]) -> Expanded {
        self.expand_groups(body, (self.input, images), [1, self.padded()], |packed, to, step| {
            let patches = packed.len() / self.input.image() * self.patches();
            self.expand_inputs(body, packed, 0..patches, (to, step));
        })
    }

    /// For every tile of the output by itself: the tiles of a group are groups here.
    fn expanded_deltas(&self, body: &dyn InstructionSet, map: Map, deltas: &[f32]) -> Expanded {
        let (lane, tiles) = (self.out.lane, self.out.tiles());
        self.expand_groups(body, (map, deltas), [tiles, lane], |packed, to, step| {
            for (tile, to) in to.chunks_exact_mut(PRODUCTS * step).enumerate() {
                for i in 0..packed.len() / map.image() * self.patches() {
                    let corner = self.corner(&map, packed, tile, i);
                    body.expand_delta(&corner, &mut to[i * lane..], step);
                }
            }
        })
    }

    /// Images `[n, c, h, w]` group by group: `expand` gets those of a group packed into `map`, where their
    /// products go, of `tiles` times `row` floats a patch, and the distance of one product from the next.
    fn expand_groups(
        &self,
        body: &dyn InstructionSet,
        (map, images): (Map, &[f32]),
        [tiles, row]: [usize; 2],
        expand: impl Fn(&[f32], &mut [f32], usize) + Sync,
    ) -> Expanded {
        let dense = map.dense();
        let (grouped, patches) = self.grouped(images.len() / dense);
        let step = patches[0].len() * row + SKEW;
        let mut data = Buffer::stale(grouped.len() * tiles * PRODUCTS * step);
        let room = || Buffer::zeros(grouped[0].len() * map.image());
        let tasks = data.par_chunks_exact_mut(tiles * PRODUCTS * step).zip(&grouped);
        tasks.for_each_init(room, |packed, (to, group)| {
            let packed = &mut packed[..group.len() * map.image()];
            map.pack_all(body, &images[group.start * dense..group.end * dense], packed);
            expand(packed, to, step);
        });
        Expanded { data, groups: patches, steps: [PRODUCTS * step, step] }
    }
}

impl Expanded {
    /// Where a product of a group begins.
    fn start(&self, group: usize, k: usize) -> usize {
        let [group_step, step] = self.steps;
        group * group_step + k * step
    }
}
