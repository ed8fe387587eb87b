//! Convolutions of each channel by itself, of whole batches.

use std::mem::MaybeUninit;

use super::buffers::{Buffer, in_parts, zero_filled};
use super::depthwise::{Depthwise as Plane, padded_floats};
use super::depthwise_tile::{TiledDepthwise, TiledMap};
use super::instruction_set::InstructionSet;

/// Multiply-adds that are worth a task of their own.
const PARALLEL: usize = 1 << 18;

const UNBOUNDED: [f32; 2] = [f32::NEG_INFINITY, f32::INFINITY];

/// Sizes of a convolution of each channel by itself; none is 0.
#[derive(Clone, Copy, Debug)]
pub struct DepthwiseShape {
    /// Images.
    pub n: usize,
    /// Channels of an image.
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

/// A map of the sums.
pub struct Epilogue<'a> {
    /// Factor of each channel.
    pub scale: &'a [f32],
    /// Summand of each channel.
    pub shift: &'a [f32],
    /// Least and largest value of all.
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
        let epilogue = Epilogue { scale: &ones, shift: &zeros, bounds: UNBOUNDED };
        self.finished_output(body, x, w, &epilogue)
    }

    /// The output after its epilogue.
    pub fn finished_output(
        &self,
        body: &dyn InstructionSet,
        x: &[f32],
        w: &[f32],
        epilogue: &Epilogue<'_>,
    ) -> Vec<f32> {
        match self.suits_tiles(body) {
            true => self.tiles(body, x, 1).output(w, epilogue),
            false => self.rows(body, x, w, epilogue),
        }
    }

    /// True where vectors of channels write the output faster than vectors of columns, which are partly empty where rows
    /// are short, and pick every other column at stride 2. Vectors of channels transpose input and output, whatever the taps.
    fn suits_tiles(&self, body: &dyn InstructionSet) -> bool {
        let (columns, width) = (self.out[1], body.tile() / 2);
        let taps = self.taps() * columns.next_multiple_of(width);
        self.stride == 2 || 4 * taps >= 5 * width * columns
    }

    /// True where vectors of channels sum the gradient of the filters faster: vectors of columns add up their lanes for each plane.
    fn weight_suits_tiles(&self, body: &dyn InstructionSet) -> bool {
        self.window == 5 || self.stride == 2 || self.out[1] < 3 * body.tile() / 2
    }

    /// The output by vectors of columns, plane by plane.
    fn rows(
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

    /// The maps `x`, with so many pixels from one to the next, by vectors of channels.
    fn tiles<'a>(&'a self, body: &'a dyn InstructionSet, x: &'a [f32], spread: usize) -> Tiles<'a> {
        let (tile, [rows, columns]) = (
            body.tile(),
            [0, 1].map(|side| {
                let read = (self.out[side] - 1) * self.stride + self.window;
                read.max(self.before[side] + (self.size[side] - 1) * spread + 1)
            }),
        );
        let [top, left] = self.before;
        let place = |pixel: usize| {
            let [y, x] = [pixel / self.size[1], pixel % self.size[1]];
            ((top + y * spread) * columns + left + x * spread) * tile
        };
        let places = (0..self.size.iter().product()).map(place).collect();
        Tiles { shape: self, body, x, places, size: [rows, columns] }
    }

    /// The gradient of the input, for filters `w` and the output's gradient `dy`: the convolution of `dy`, with zeros between its
    /// pixels at stride 2, with the turned filter.
    pub fn input(&self, body: &dyn InstructionSet, w: &[f32], dy: &[f32]) -> Vec<f32> {
        let turned: Vec<f32> =
            w.chunks_exact(self.taps()).flat_map(|w| w.iter().rev()).copied().collect();
        let back = Self {
            size: self.out,
            out: self.size,
            stride: 1,
            before: self.before.map(|zeros| self.window - 1 - zeros),
            ..*self
        };
        let (ones, zeros) = (vec![1.0; self.channels], vec![0.0; self.channels]);
        let epilogue = Epilogue { scale: &ones, shift: &zeros, bounds: UNBOUNDED };
        if back.suits_tiles(body) {
            return back.tiles(body, dy, self.stride).output(&turned, &epilogue);
        }
        if self.stride == 1 {
            return back.rows(body, dy, &turned, &epilogue);
        }
        let spread = self.out.map(|side| (side - 1) * self.stride + 1);
        let (columns, pixels, wide) = (self.out[1], self.out.iter().product::<usize>(), spread[1]);
        let mut between = Buffer::zeros(self.n * self.channels * spread[0] * wide);
        for (dy, plane) in dy.chunks_exact(pixels).zip(between.chunks_exact_mut(spread[0] * wide)) {
            for (dy, row) in dy.chunks_exact(columns).zip(plane.chunks_mut(self.stride * wide)) {
                row.iter_mut().step_by(self.stride).zip(dy).for_each(|(to, from)| *to = *from);
            }
        }
        Self { size: spread, ..back }.rows(body, &between, &turned, &epilogue)
    }

    /// The gradient of the filters, for the output's gradient `dy` and maps `x`.
    pub fn weight(&self, body: &dyn InstructionSet, dy: &[f32], x: &[f32]) -> Vec<f32> {
        if self.weight_suits_tiles(body) {
            return self.tiles(body, x, 1).weight(dy);
        }
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

/// Maps that are taken tile of channels by tile of channels.
struct Tiles<'a> {
    shape: &'a DepthwiseShape,
    body: &'a dyn InstructionSet,
    x: &'a [f32],
    /// Place of each pixel of a plane among those of a tile, with the zeros around and between them.
    places: Vec<usize>,
    /// Height and width with these zeros.
    size: [usize; 2],
}

impl Tiles<'_> {
    fn output(&self, w: &[f32], &Epilogue { scale, shift, bounds }: &Epilogue<'_>) -> Vec<f32> {
        let Self { shape, body, .. } = *self;
        let (tile, taps, channels) = (body.tile(), shape.taps(), shape.channels);
        let out = shape.out.iter().product::<usize>();
        // Channels begin again behind the last, since a tile may go on in the next image.
        let around = |rows: &[f32]| {
            let mut around = Vec::with_capacity(rows.len() / channels * (channels + tile));
            for row in rows.chunks_exact(channels) {
                let end = around.len() + channels + tile;
                while around.len() < end {
                    around.extend_from_slice(&row[..channels.min(end - around.len())]);
                }
            }
            around
        };
        let mut turned = vec![0.0; w.len()];
        body.transposed(w, taps, &mut turned);
        let filters = around(&turned);
        let [scale, shift] = [scale, shift].map(around);
        let (count, places) = (shape.n * channels, tile_places(out, tile));
        let planes = shape.planes_of_task(count, out).next_multiple_of(tile);
        let write = |_: &(), [_, task]: [usize; 2], y: &mut [MaybeUninit<f32>]| {
            let mut map = Buffer::zeros(self.size.iter().product::<usize>() * tile);
            let [mut sums, mut last] = [0; 2].map(|_| Buffer::stale(out * tile));
            for (place, y) in y.chunks_mut(tile * out).enumerate() {
                let (y, first) = (zero_filled(y), task * planes + place * tile);
                let channel = first % channels;
                self.interleave(first, &mut map);
                let job = self.job(&map, &filters[channel..], channels + tile);
                let [scale, shift] = [&scale, &shift].map(|of| &of[channel..]);
                body.depthwise_tile(&job, &TiledMap { scale, shift, bounds }, &mut sums);
                if y.len() == tile * out {
                    body.separate(&sums, &places, y);
                } else {
                    body.separate(&sums, &places, &mut last);
                    y.copy_from_slice(&last[..y.len()]);
                }
            }
        };
        // SAFETY: all are zeros at least.
        unsafe { in_parts(1, [count * out, planes * out], |_| (), write) }
    }

    fn weight(&self, dy: &[f32]) -> Vec<f32> {
        let Self { shape, body, .. } = *self;
        let (tile, taps, channels) = (body.tile(), shape.taps(), shape.channels);
        let out = shape.out.iter().product::<usize>();
        let each = shape.planes_of_task(channels, shape.n * out).next_multiple_of(tile);
        let places = tile_places(out, tile);
        let write = |_: &(), [_, task]: [usize; 2], w: &mut [MaybeUninit<f32>]| {
            let mut map = Buffer::zeros(self.size.iter().product::<usize>() * tile);
            let mut gradient = Buffer::stale(out * tile);
            for (place, w) in zero_filled(w).chunks_mut(tile * taps).enumerate() {
                let mut sums = Buffer::zeros(taps * tile);
                for n in 0..shape.n {
                    let first = n * channels + task * each + place * tile;
                    self.interleave(first, &mut map);
                    interleave(body, &dy[first * out..], &places, &mut gradient);
                    let job = self.job(&map, &[], tile);
                    body.depthwise_tile_weight(&job, &gradient, &mut sums);
                }
                for (channel, w) in w.chunks_exact_mut(taps).enumerate() {
                    w.iter_mut().enumerate().for_each(|(tap, w)| *w = sums[tap * tile + channel]);
                }
            }
        };
        // SAFETY: all are zeros at least.
        unsafe { in_parts(1, [channels * taps, each * taps], |_| (), write) }
    }

    fn job<'a>(&self, x: &'a [f32], filter: &'a [f32], filter_row: usize) -> TiledDepthwise<'a> {
        let DepthwiseShape { window, stride, out, .. } = *self.shape;
        TiledDepthwise { x, columns: self.size[1], filter, filter_row, window, stride, out }
    }

    /// Writes the tile of planes from number `first` on between its zeros.
    fn interleave(&self, first: usize, map: &mut [f32]) {
        interleave(self.body, &self.x[first * self.places.len()..], &self.places, map);
    }
}

/// Places of the pixels of a tile that lie one after the other.
fn tile_places(pixels: usize, tile: usize) -> Vec<usize> {
    (0..pixels).map(|pixel| pixel * tile).collect()
}

/// Writes the first planes to a tile: behind the last one, planes of zeros.
fn interleave(body: &dyn InstructionSet, planes: &[f32], places: &[usize], map: &mut [f32]) {
    let needed = body.tile() * places.len();
    if planes.len() >= needed {
        return body.interleave(planes, places, map);
    }
    let mut padded = Buffer::zeros(needed);
    padded[..planes.len()].copy_from_slice(planes);
    body.interleave(&padded, places, map);
}

#[cfg(test)]
mod tests {
    use super::{DepthwiseShape, Epilogue};
    use crate::instruction_set::bodies;
    use crate::integers;

    /// Calls `take` with the places in output, input and filters of every product.
    fn products(shape: &DepthwiseShape, mut take: impl FnMut(usize, usize, usize)) {
        let ([h, w], [rows, columns]) = (shape.size, shape.out);
        let window = shape.window;
        for plane in 0..shape.n * shape.channels {
            for (at, tap) in
                (0..rows * columns).flat_map(|at| (0..window * window).map(move |tap| (at, tap)))
            {
                let y = (at / columns * shape.stride + tap / window).wrapping_sub(shape.before[0]);
                let x = (at % columns * shape.stride + tap % window).wrapping_sub(shape.before[1]);
                if y < h && x < w {
                    let filter = plane % shape.channels * window * window + tap;
                    take(plane * rows * columns + at, (plane * h + y) * w + x, filter);
                }
            }
        }
    }

    #[test]
    fn maps_and_both_gradients_are_those_of_the_formula() {
        let sizes = [[1, 1], [3, 3], [3, 5], [7, 6], [11, 11], [6, 21], [5, 33], [4, 64]];
        for (size, channels) in sizes.into_iter().flat_map(|size| [3, 16, 37].map(|c| (size, c))) {
            for (window, stride, before, after) in
                [(3, 1, 1, 1), (3, 2, 0, 1), (5, 1, 2, 2), (5, 2, 1, 2), (5, 2, 2, 2), (5, 1, 4, 0)]
            {
                if size.iter().any(|side| side + before + after < window) {
                    continue;
                }
                let out = size.map(|side| (side + before + after - window) / stride + 1);
                let before = [before; 2];
                let shape = DepthwiseShape { n: 3, channels, size, out, window, stride, before };
                let [pixels, outputs] = [size, out].map(|size| 3 * channels * size[0] * size[1]);
                let x = integers(pixels, 1);
                let w = integers(channels * window * window, 2);
                let dy = integers(outputs, 3);
                let mut y = vec![0.0; outputs];
                let [mut dx, mut dw] = [vec![0.0; pixels], vec![0.0; w.len()]];
                products(&shape, |to, from, filter| {
                    y[to] += x[from] * w[filter];
                    dx[from] += dy[to] * w[filter];
                    dw[filter] += dy[to] * x[from];
                });
                let [scale, shift] = [4, 5].map(|seed| integers(channels, seed));
                let epilogue = Epilogue { scale: &scale, shift: &shift, bounds: [-400.0, 600.0] };
                let finished = y.iter().enumerate().map(|(at, y)| {
                    let channel = at / (out[0] * out[1]) % channels;
                    (y * scale[channel] + shift[channel]).clamp(-400.0, 600.0)
                });
                let finished: Vec<_> = finished.collect();
                for body in bodies() {
                    let what = format!("{} {shape:?}", body.name());
                    assert_eq!(shape.output(body, &x, &w), y, "{what}");
                    assert_eq!(shape.finished_output(body, &x, &w, &epilogue), finished, "{what}");
                    assert_eq!(shape.input(body, &w, &dy), dx, "{what}");
                    assert_eq!(shape.weight(body, &dy, &x), dw, "{what}");
                }
            }
        }
    }
}
