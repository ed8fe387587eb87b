//! Sums over the batch that the gradient of batch-norm needs.

use std::ops::Range;

use rayon::prelude::*;

use super::forward::Saved;
use super::norm::{Deviation, NormGradient, Sums};
use super::per_batch::PerBatch;
use crate::cpu::activate_vjp::Target;
use crate::cpu::buffers::Buffer;
use crate::cpu::images::{Images, Keep};
use crate::cpu::moments::Correlation;

impl Saved {
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
        let mut out = vec![0.0; 2 * lane];
        for tile in 0..plan.out.tiles() {
            let value = (&value[plan.out.start(tile, 0)..], plan.out.row());
            let grad = (&grad[tile * h * w * lane..], w * lane);
            let centre = &beta[tile * lane..];
            let pair = Correlation { value, grad, size: [h, w], centre, gated: true };
            self.body.correlate(&pair, &mut out);
            sums.of_mut(n).add_tile(tile * lane, &out);
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
        let plan = &self.plans[k];
        let (weights, lane) = (self.weights(k), plan.conv.lane);
        let ones = NormGradient::identity(plan.padded());
        let sums = self.slots.par_iter().map(|images| {
            let mut sums = self.no_sums(k, images);
            let mut scratch = Buffer::stale(plan.strip_len());
            let mut dz = Buffer::stale(plan.strip_len());
            let mut out = vec![0.0; 2 * lane];
            for n in images.clone() {
                let (input, y) = (self.inputs[k].get(n), self.convs[k].get(n));
                let norm = self.norms[k].of(n);
                for (tile, rows) in plan.pieces() {
                    let grad = plan.grad_rows(tile, &rows, grad.get(n));
                    let (size, row) = ([rows.len(), plan.conv.w], plan.conv.row());
                    let weights = (weights, tile);
                    let y = plan.strip(self.body, weights, (input, y), rows, &mut scratch);
                    let strip = plan.affine(tile, y, norm);
                    let target = Target { d: &mut dz, row, pixel: lane };
                    let slope = ones.slope(plan.channels(tile));
                    self.body.activate_vjp(&strip, grad, &slope, target);
                    let centre = &norm.mean[tile * lane..];
                    let (value, grad) = ((y, row), (&*dz, row));
                    let pair = Correlation { value, grad, size, centre, gated: false };
                    self.body.correlate(&pair, &mut out);
                    sums.of_mut(n).add_tile(tile * lane, &out);
                }
            }
            sums
        });
        PerBatch::total(sums.collect(), Sums::merge)
    }
}
