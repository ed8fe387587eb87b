//! Strips of the saved convolutions, and the sums over the batch that the gradient of batch-norm needs.

use std::ops::Range;

use fewshot_simd::activate::Strip;
use fewshot_simd::activate_vjp::{Coefficients, Target};
use fewshot_simd::buffers::Buffer;
use fewshot_simd::images::{Images, Keep};
use fewshot_simd::layout::Map;
use fewshot_simd::moments::Correlation;
use rayon::prelude::*;

use super::forward::Saved;
use super::norm::{Deviation, NormGradient, Sums};
use super::per_batch::PerBatch;

/// Channels of a tile at most, those of AVX-512.
const MOST_CHANNELS: usize = 32;

/// [`Coefficients`] of an absent term.
pub(super) const NONE: &[f32] = &[0.0; MOST_CHANNELS];

/// Rows of one tile of a convolution's output.
pub(super) struct Piece {
    /// The block.
    pub k: usize,
    /// The image of the batch.
    pub n: usize,
    pub tile: usize,
    pub rows: Range<usize>,
}

/// Where a gradient goes in a map of this layout, from its first pixel on.
pub(super) fn target<'a>(map: &Map, d: &'a mut [f32]) -> Target<'a> {
    Target { d, row: map.row(), pixel: map.lane }
}

impl Saved {
    /// Every piece of an image in block `k`.
    pub(super) fn pieces(&self, k: usize, n: usize) -> impl Iterator<Item = Piece> + use<'_> {
        self.plans[k].pieces().map(move |(tile, rows)| Piece { k, n, tile, rows })
    }

    /// The convolution's output, computed into `scratch` unless it is stored, with the map that
    /// normalises it.
    pub(super) fn strip<'a>(&'a self, piece: &Piece, scratch: &'a mut [f32]) -> Strip<'a> {
        let Piece { k, n, tile, .. } = *piece;
        let (plan, images) = (&self.plans[k], (self.inputs[k].get(n), self.convs[k].get(n)));
        let y = plan.strip(self.body, (self.weights(k), tile), images, piece.rows.clone(), scratch);
        plan.affine(tile, y, self.norms[k].of(n))
    }

    /// Takes the gradient of the block's output back through pool, ReLU and the norm.
    pub(super) fn activate_vjp(
        &self,
        piece: &Piece,
        strip: &Strip<'_>,
        grad: &Images,
        coefficients: &Coefficients<'_>,
        to: Target<'_>,
    ) {
        let grad = self.plans[piece.k].grad_rows(piece.tile, &piece.rows, grad.get(piece.n));
        self.body.activate_vjp(strip, grad, coefficients, to);
    }

    /// Writes `dz`, the gradient of the normalised values, of a strip.
    pub(super) fn dz(&self, piece: &Piece, strip: &Strip<'_>, grad: &Images, dz: &mut [f32]) {
        let coefficients = Coefficients { gain: &[1.0; MOST_CHANNELS], slope: NONE, offset: NONE };
        self.activate_vjp(piece, strip, grad, &coefficients, target(&self.plans[piece.k].conv, dz));
    }

    /// Adds the sums of `grad` and of `grad * (value - mean)` over a strip.
    pub(super) fn add_products(
        &self,
        piece: &Piece,
        [value, grad]: [&[f32]; 2],
        mean: &[f32],
        sums: &mut Sums,
    ) {
        let conv = self.plans[piece.k].conv;
        let [value, grad] = [value, grad].map(|of| (of, conv.row()));
        let (size, centre) = ([piece.rows.len(), conv.w], &mean[piece.tile * conv.lane..]);
        let pair = Correlation { value, grad, size, centre, gated: false };
        self.add_correlation(piece.tile, &pair, sums);
    }

    fn add_correlation(&self, tile: usize, pair: &Correlation<'_>, sums: &mut Sums) {
        let lane = self.body.tile();
        let mut tile_sums = [0.0; 2 * MOST_CHANNELS];
        self.body.correlate(pair, &mut tile_sums[..2 * lane]);
        sums.add_tile(tile * lane, &tile_sums[..2 * lane]);
    }

    /// The sum of `each` over the strips of block `k`; `each` also gets memory for one more strip.
    pub(super) fn over_strips<T: Send>(
        &self,
        k: usize,
        empty: impl Fn(usize) -> T + Sync,
        merge: impl Fn(&mut T, &T),
        each: impl Fn(&Piece, &Strip<'_>, &mut [f32], &mut T) + Sync,
    ) -> PerBatch<T> {
        let plan = &self.plans[k];
        let parts = self.slots.par_iter().map(|images| {
            let mut all = self.per_batch(images, || empty(plan.padded()));
            let [mut scratch, mut dz] = [(); 2].map(|()| Buffer::stale(plan.strip_len()));
            for n in images.clone() {
                for piece in self.pieces(k, n) {
                    each(&piece, &self.strip(&piece, &mut scratch), &mut dz, all.of_mut(n));
                }
            }
            all
        });
        PerBatch::total(parts.collect(), merge)
    }

    /// The gradient of the output in tiles, and its sums.
    pub(super) fn start(&self, dy: &[f32]) -> (Images, PerBatch<Sums>) {
        let last = self.plans.len() - 1;
        let each = |n, grad: &[f32], sums: &mut PerBatch<Sums>| self.correlate(last, n, grad, sums);
        let (grad, sums) = self.pack_output(dy, |images| self.no_sums(last, images), each);
        (grad, PerBatch::total(sums, Sums::merge))
    }

    /// A gradient of the output in tiles, and what `each` adds up over a slot's images from them.
    pub(super) fn pack_output<T: Send>(
        &self,
        dy: &[f32],
        zero: impl Fn(&Range<usize>) -> T + Sync,
        each: impl Fn(usize, &[f32], &mut T) + Sync,
    ) -> (Images, Vec<T>) {
        let map = self.plans.last().expect("a stack has blocks").out;
        let mut grad = Images::new(&self.slots, map.image(), Keep::All);
        let parts = grad.split(&self.slots).into_par_iter().zip(&self.slots);
        let sums = parts.map(|(mut grad, images)| {
            let mut sum = zero(images);
            for (i, n) in images.clone().enumerate() {
                let grad = grad.get_mut(i);
                map.pack(self.body, &dy[n * map.dense()..(n + 1) * map.dense()], grad);
                each(n, grad, &mut sum);
            }
            sum
        });
        let sums = sums.collect();
        (grad, sums)
    }

    /// Adds image `n` to the sums of block `k`, if they can be read off its output.
    pub(super) fn correlate(&self, k: usize, n: usize, grad: &[f32], sums: &mut PerBatch<Sums>) {
        if self.plans[k].deviation(&self.parameters[k]) == Deviation::Convolution {
            return;
        }
        let (plan, lane) = (&self.plans[k], self.body.tile());
        let mut beta = self.parameters[k].beta.clone();
        beta.resize(plan.padded(), 0.0);
        let value = self.inputs[k + 1].get(n);
        let (h, w) = (plan.out.h, plan.out.w);
        for tile in 0..plan.out.tiles() {
            let value = (&value[plan.out.start(tile, 0)..], plan.out.row());
            let grad = (&grad[tile * h * w * lane..], w * lane);
            let centre = &beta[tile * lane..];
            let pair = Correlation { value, grad, size: [h, w], centre, gated: true };
            self.add_correlation(tile, &pair, sums.of_mut(n));
        }
    }

    /// The sums of block `k` before any of these images.
    fn no_sums(&self, k: usize, images: &Range<usize>) -> PerBatch<Sums> {
        let padded = self.plans[k].padded();
        self.per_batch(images, || Sums::empty(padded))
    }

    /// The gradient of batch-norm of block `k`.
    pub(super) fn norm_gradient(
        &self,
        k: usize,
        grad: &Images,
        sums: &PerBatch<Sums>,
    ) -> PerBatch<NormGradient> {
        let parameters = &self.parameters[k];
        let deviation = self.plans[k].deviation(parameters);
        let own;
        let sums = match deviation {
            Deviation::Output => sums,
            Deviation::Convolution => {
                own = self.convolution_sums(k, grad);
                &own
            }
        };
        let pixels = self.pixels(&self.plans[k]);
        sums.map(|image, sums| {
            NormGradient::new(self.norms[k].of(image), parameters, sums, deviation, pixels)
        })
    }

    /// The sums of block `k` from its convolution's output, where its own output lacks the digits.
    fn convolution_sums(&self, k: usize, grad: &Images) -> PerBatch<Sums> {
        self.over_strips(k, Sums::empty, Sums::merge, |piece, strip, dz, sums| {
            self.dz(piece, strip, grad, dz);
            self.add_products(piece, [strip.y, dz], &self.norms[k].of(piece.n).mean, sums);
        })
    }
}
