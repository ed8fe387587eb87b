//! Convolutions of each channel by itself, on slices.

use std::mem::MaybeUninit;

use fewshot_simd::buffers::{Buffer, in_parts, zero_filled};
use fewshot_simd::depthwise::{Depthwise as Plane, padded_floats};
use fewshot_simd::instruction_set::InstructionSet;

/// Multiply-adds that are worth a task of their own.
const PARALLEL: usize = 1 << 18;

/// Sizes of a convolution of each channel by itself; none is 0.
#[derive(Clone, Copy, Debug)]
pub struct DepthwiseShape {
    pub n: usize,
    pub channels: usize,
    /// Height and width of the input.
    pub size: [usize; 2],
    /// Height and width of the output.
    pub out: [usize; 2],
    /// 3 or 5.
    pub window: usize,
    /// 1 or 2.
    pub stride: usize,
    /// Zeros above and to the left.
    pub before: [usize; 2],
}

/// Factor and summand of the sums of a channel, and the least and largest value of all.
pub struct Epilogue<'a> {
    pub scale: &'a [f32],
    pub shift: &'a [f32],
    pub bounds: [f32; 2],
}

impl DepthwiseShape {
    fn taps(&self) -> usize {
        self.window * self.window
    }

    /// Planes that are a task, of `count`, each of so many pixels.
    fn planes_of_task(&self, count: usize, pixels: usize) -> usize {
        let tasks = count * pixels * self.taps() / PARALLEL;
        count.div_ceil(tasks.clamp(1, rayon::current_num_threads()))
    }

    /// The convolution of a plane of a channel.
    fn plane<'a>(
        &self,
        x: &'a [f32],
        filter: &'a [f32],
        map: [f32; 2],
        bounds: [f32; 2],
    ) -> Plane<'a> {
        let Self { size, stride, before, out, .. } = *self;
        Plane { x, size, filter, stride, before, out, map, bounds }
    }

    /// The output for maps `x` and filters `w`.
    pub fn output(&self, body: &dyn InstructionSet, x: &[f32], w: &[f32]) -> Vec<f32> {
        let (ones, zeros) = (vec![1.0; self.channels], vec![0.0; self.channels]);
        let bounds = [f32::NEG_INFINITY, f32::INFINITY];
        self.finished_output(body, x, w, &Epilogue { scale: &ones, shift: &zeros, bounds })
    }

    /// The output after its epilogue.
    pub fn finished_output(
        &self,
        body: &dyn InstructionSet,
        x: &[f32],
        w: &[f32],
        &Epilogue { scale, shift, bounds }: &Epilogue<'_>,
    ) -> Vec<f32> {
        let (pixels, taps) = (self.size.iter().product::<usize>(), self.taps());
        let job = |place: usize| {
            let channel = place % self.channels;
            let (x, filter) = (&x[place * pixels..][..pixels], &w[channel * taps..][..taps]);
            self.plane(x, filter, [scale[channel], shift[channel]], bounds)
        };
        let (count, out) = (self.n * self.channels, self.out.iter().product());
        let planes = self.planes_of_task(count, out);
        let write = |_: &(), [_, task]: [usize; 2], y: &mut [MaybeUninit<f32>]| {
            let mut padded = Buffer::zeros(padded_floats(&job(task * planes)));
            for (place, y) in y.chunks_exact_mut(out).enumerate() {
                body.depthwise(&job(task * planes + place), &mut padded, y);
            }
        };
        // SAFETY: a part is whole planes, all of whose pixels are written.
        unsafe { in_parts(1, [count * out, planes * out], |_| (), write) }
    }

    /// The gradient of the input, for filters `w` and the output's gradient `dy`: the convolution of `dy`, with zeros between its
    /// pixels at stride 2, with the turned filter.
    pub fn input(&self, body: &dyn InstructionSet, w: &[f32], dy: &[f32]) -> Vec<f32> {
        let turned: Vec<f32> =
            w.chunks_exact(self.taps()).flat_map(|w| w.iter().rev()).copied().collect();
        let spread = self.out.map(|side| (side - 1) * self.stride + 1);
        let back = Self {
            size: spread,
            out: self.size,
            stride: 1,
            before: self.before.map(|zeros| self.window - 1 - zeros),
            ..*self
        };
        if self.stride == 1 {
            return back.output(body, dy, &turned);
        }
        let (columns, pixels, wide) = (self.out[1], self.out.iter().product::<usize>(), spread[1]);
        let mut between = Buffer::zeros(self.n * self.channels * spread[0] * wide);
        for (dy, plane) in dy.chunks_exact(pixels).zip(between.chunks_exact_mut(spread[0] * wide)) {
            for (dy, row) in dy.chunks_exact(columns).zip(plane.chunks_mut(self.stride * wide)) {
                row.iter_mut().step_by(self.stride).zip(dy).for_each(|(to, from)| *to = *from);
            }
        }
        back.output(body, &between, &turned)
    }

    /// The gradient of the filters, for the output's gradient `dy` and maps `x`.
    pub fn weight(&self, body: &dyn InstructionSet, dy: &[f32], x: &[f32]) -> Vec<f32> {
        let (taps, channels) = (self.taps(), self.channels);
        let [pixels, out] = [self.size, self.out].map(|size| size.iter().product::<usize>());
        let each = self.planes_of_task(channels, self.n * out);
        let filter = vec![0.0; taps];
        let write = |_: &(), [_, task]: [usize; 2], sums: &mut [MaybeUninit<f32>]| {
            let job = |plane: usize| {
                self.plane(&x[plane * pixels..][..pixels], &filter, [0.0; 2], [0.0; 2])
            };
            let mut padded = Buffer::zeros(padded_floats(&job(0)));
            for (place, sums) in zero_filled(sums).chunks_exact_mut(taps).enumerate() {
                for plane in (0..self.n).map(|n| n * channels + task * each + place) {
                    let dy = &dy[plane * out..][..out];
                    body.depthwise_weight(&job(plane), dy, &mut padded, sums);
                }
            }
        };
        // SAFETY: all are zeros at least.
        unsafe { in_parts(1, [channels * taps, each * taps], |_| (), write) }
    }
}
