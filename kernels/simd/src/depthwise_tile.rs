//! Convolution of each channel by itself, of a tile of channels at once, which suits maps narrower than a vector.

use super::simd::{Simd, with_rows};

/// Maps of a tile of channels, pixel by pixel, and their filters.
#[derive(Clone, Copy, Debug)]
pub struct TiledDepthwise<'a> {
    /// `[rows, columns, TILE]`: all pixels that windows read, zeros among them.
    pub x: &'a [f32],
    /// Pixels of a row of `x`.
    pub columns: usize,
    /// `[window * window, filter_row]`, of which the first `TILE` floats of a row are the filters'; the window is 3 or 5.
    pub filter: &'a [f32],
    /// Floats from a tap of the filters to the next.
    pub filter_row: usize,
    /// Height and width of a window.
    pub window: usize,
    /// Distance between windows.
    pub stride: usize,
    /// Height and width of the output.
    pub out: [usize; 2],
}

/// Epilogue of a tile.
#[derive(Clone, Copy, Debug)]
pub struct TiledMap<'a> {
    /// Factors of the sums, `TILE` or more.
    pub scale: &'a [f32],
    /// Summands, `TILE` or more.
    pub shift: &'a [f32],
    /// Least and largest value that is written.
    pub bounds: [f32; 2],
}

impl TiledDepthwise<'_> {
    /// Floats from a row of `x` to the next.
    fn row<S: Simd>(&self) -> usize {
        self.columns * 2 * S::WIDTH
    }

    /// Checks that windows and filters lie in their memory, and that `out` has every pixel.
    #[inline(always)]
    fn check<S: Simd>(&self, filter: usize, out: usize) {
        let [rows, columns] = self.out.map(|count| (count - 1) * self.stride + self.window);
        assert!(columns <= self.columns && rows * self.row::<S>() <= self.x.len());
        assert!((self.window * self.window - 1) * self.filter_row + 2 * S::WIDTH <= filter);
        assert!(self.out[0] * self.out[1] * 2 * S::WIDTH <= out);
    }
}

/// Output pixels that are computed together: their sums hide the latency of each other.
const PIXELS: usize = 6;

/// Writes the output, `[h, w, TILE]`.
#[inline(always)]
pub fn depthwise_tile<S: Simd>(
    simd: S,
    job: &TiledDepthwise<'_>,
    map: &TiledMap<'_>,
    out: &mut [f32],
) {
    job.check::<S>(job.filter.len(), out.len());
    match job.window {
        3 => filtered::<S, 3>(simd, job, map, out),
        5 => filtered::<S, 5>(simd, job, map, out),
        window => unreachable!("a window of 3 or 5, not {window}"),
    }
}

#[inline(always)]
fn filtered<S: Simd, const K: usize>(
    simd: S,
    job: &TiledDepthwise<'_>,
    map: &TiledMap<'_>,
    out: &mut [f32],
) {
    let (tile, [rows, columns]) = (2 * S::WIDTH, job.out);
    for half in [0, S::WIDTH] {
        for y in 0..rows {
            for first in (0..columns).step_by(PIXELS) {
                let x = job.x[y * job.stride * job.row::<S>() + first * job.stride * tile..]
                    [half..]
                    .as_ptr();
                let to = (y * columns + first) * tile + half;
                with_rows!((columns - first).min(PIXELS), PIXELS, [1 2 3 4 5 6], |P| {
                    // SAFETY: `check` has found every pixel of the windows, and the filters.
                    let sums = unsafe { windows::<S, K, P>(simd, job, x, half) };
                    write::<S, P>(simd, sums, map, half, &mut out[to..]);
                });
            }
        }
    }
}

/// Sums of `P` windows next to each other, the first of which begins at `x`, of the channels from `half` on.
///
/// # Safety
/// All pixels of the windows and all filters can be read.
#[inline(always)]
unsafe fn windows<S: Simd, const K: usize, const P: usize>(
    simd: S,
    job: &TiledDepthwise<'_>,
    x: *const f32,
    half: usize,
) -> [S::Vector; P] {
    let (row, step) = (job.row::<S>(), job.stride * 2 * S::WIDTH);
    let filter = job.filter[half..].as_ptr();
    let mut sums = [simd.splat(0.0); P];
    for i in 0..K {
        for j in 0..K {
            // SAFETY: the tap of each window is a pixel of it.
            unsafe {
                let filter = simd.read(filter.add((i * K + j) * job.filter_row));
                let x = x.add(i * row + j * 2 * S::WIDTH);
                for (p, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.mul_add(simd.read(x.add(p * step)), filter, *sum);
                }
            }
        }
    }
    sums
}

#[inline(always)]
fn write<S: Simd, const P: usize>(
    simd: S,
    sums: [S::Vector; P],
    map: &TiledMap<'_>,
    half: usize,
    out: &mut [f32],
) {
    let (scale, shift) = (simd.load(&map.scale[half..]), simd.load(&map.shift[half..]));
    let (least, most) = (simd.splat(map.bounds[0]), simd.splat(map.bounds[1]));
    for (p, sum) in sums.into_iter().enumerate() {
        let value = simd.min(simd.max(simd.mul_add(sum, scale, shift), least), most);
        simd.store(&mut out[p * 2 * S::WIDTH..], value);
    }
}

/// Adds to `sums`, `[window * window, TILE]`, the gradient of the filters, for the gradient `dy` of the output,
/// `[h, w, TILE]`. The filters of the job do not matter.
#[inline(always)]
pub fn depthwise_tile_weight<S: Simd>(
    simd: S,
    job: &TiledDepthwise<'_>,
    dy: &[f32],
    sums: &mut [f32],
) {
    let job = &TiledDepthwise { filter_row: 2 * S::WIDTH, ..*job };
    job.check::<S>(sums.len(), dy.len());
    match job.window {
        3 => correlated::<S, 3, 3>(simd, job, dy, 0, sums),
        5 => {
            correlated::<S, 5, 2>(simd, job, dy, 0, sums);
            correlated::<S, 5, 2>(simd, job, dy, 2, sums);
            correlated::<S, 5, 1>(simd, job, dy, 4, sums);
        }
        window => unreachable!("a window of 3 or 5, not {window}"),
    }
}

/// Adds the gradient of the rows of the filters from `first` on, so many that their sums stay in registers.
#[inline(always)]
fn correlated<S: Simd, const K: usize, const ROWS: usize>(
    simd: S,
    job: &TiledDepthwise<'_>,
    dy: &[f32],
    first: usize,
    sums: &mut [f32],
) {
    let (row, tile, [rows, columns]) = (job.row::<S>(), 2 * S::WIDTH, job.out);
    for half in [0, S::WIDTH] {
        let mut parts = [[simd.splat(0.0); K]; ROWS];
        for y in 0..rows {
            let x = job.x[(y * job.stride + first) * row + half..].as_ptr();
            let dy = dy[y * columns * tile + half..].as_ptr();
            for column in 0..columns {
                // SAFETY: `check` has found every pixel of the windows and of `dy`.
                unsafe {
                    let dy = simd.read(dy.add(column * tile));
                    let x = x.add(column * job.stride * tile);
                    for (i, parts) in parts.iter_mut().enumerate() {
                        for (j, part) in parts.iter_mut().enumerate() {
                            let x = simd.read(x.add(i * row + j * tile));
                            *part = simd.mul_add(x, dy, *part);
                        }
                    }
                }
            }
        }
        for (place, part) in parts.as_flattened().iter().enumerate() {
            let sum = &mut sums[(first * K + place) * tile + half..];
            simd.store(sum, simd.add(simd.load(sum), *part));
        }
    }
}
