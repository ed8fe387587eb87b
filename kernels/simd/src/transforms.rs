//! The transforms of Winograd's convolution F(4x4, 3x3).
//!
//! With `d` a 6x6 window of the input, `g` a 3x3 weight and `y` the 4x4 output,
//! `y = A' [(G g G') * (B' d B)] A`: 36 products instead of 144. The matrices are those of the
//! interpolation points 0, 1, -1, 2, -2 and infinity.
//!
//! # Source
//! A. Lavin and S. Gray, Fast algorithms for convolutional neural networks, CVPR 2016.

use super::simd::Simd;

/// Products for each 4x4 outputs.
pub const PRODUCTS: usize = 36;

/// Pixels of a map from some corner on; those beyond its end count as zero.
pub struct Corner<'a> {
    /// From the corner in the first channel tile.
    pub data: &'a [f32],
    /// Distance between channel tiles.
    pub plane: usize,
    /// Distance between rows.
    pub row: usize,
    /// Channel tiles.
    pub tiles: usize,
    /// Rows and columns left in the map.
    pub left: [usize; 2],
}

/// Pixels of one channel tile of a map from some corner on; those beyond its end are not written.
pub struct CornerMut<'a> {
    /// From the corner.
    pub data: &'a mut [f32],
    /// Distance between rows.
    pub row: usize,
    /// Rows and columns left in the map.
    pub left: [usize; 2],
}

impl Corner<'_> {
    /// The `N` rows of `N` pixels from float `at` on.
    #[inline(always)]
    fn window<S: Simd, const N: usize>(&self, simd: S, at: usize) -> [[S::Vector; N]; N] {
        let mut window = [[simd.splat(0.0); N]; N];
        if self.left[0] >= N && self.left[1] >= N {
            let end = (N - 1) * self.row + at + (N - 1) * S::TILE + S::WIDTH;
            let from = self.data[at..end].as_ptr();
            for (i, row) in window.iter_mut().enumerate() {
                for (j, value) in row.iter_mut().enumerate() {
                    // SAFETY: the slice above ends with the last of these vectors.
                    *value = unsafe { simd.read(from.add(i * self.row + j * S::TILE)) };
                }
            }
        } else {
            for (i, row) in window.iter_mut().enumerate().take(self.left[0]) {
                let from = &self.data[i * self.row + at..];
                for (j, value) in row.iter_mut().enumerate().take(self.left[1]) {
                    *value = simd.load(&from[j * S::TILE..]);
                }
            }
        }
        window
    }
}

/// Writes `B' d B` of every channel: product `k` of the first channel to `out[k * step]`.
#[inline(always)]
pub fn expand_input<S: Simd>(simd: S, from: &Corner<'_>, out: &mut [f32], step: usize) {
    for half in 0..2 * from.tiles {
        let at = half / 2 * from.plane + half % 2 * S::WIDTH;
        let mut window: [[_; 6]; 6] = from.window(simd, at);
        for row in &mut window {
            *row = input_line(simd, *row);
        }
        let mut products = Products::new(simd, &mut out[half * S::WIDTH..], step);
        for j in 0..6 {
            products.write_column(j, input_line(simd, column(&window, j)));
        }
    }
}

/// Writes `A dy A'` of every channel, as [`expand_input`] does: the adjoint of [`reduce_output`].
#[inline(always)]
pub fn expand_delta<S: Simd>(simd: S, from: &Corner<'_>, out: &mut [f32], step: usize) {
    for half in 0..2 * from.tiles {
        let at = half / 2 * from.plane + half % 2 * S::WIDTH;
        let window: [[_; 4]; 4] = from.window(simd, at);
        let mut rows = [[simd.splat(0.0); 6]; 4];
        for (to, row) in rows.iter_mut().zip(window) {
            *to = delta_line(simd, row);
        }
        let mut products = Products::new(simd, &mut out[half * S::WIDTH..], step);
        for j in 0..6 {
            products.write_column(j, delta_line(simd, column(&rows, j)));
        }
    }
}

/// Where the 6x6 products of one vector of channels go.
struct Products<'a, S> {
    simd: S,
    out: &'a mut [f32],
    step: usize,
}

impl<'a, S: Simd> Products<'a, S> {
    #[inline(always)]
    fn new(simd: S, out: &'a mut [f32], step: usize) -> Self {
        Self { simd, out: &mut out[..(PRODUCTS - 1) * step + S::WIDTH], step }
    }

    #[inline(always)]
    fn write_column(&mut self, j: usize, column: [S::Vector; 6]) {
        assert!(j < 6);
        for (i, value) in column.into_iter().enumerate() {
            // SAFETY: `6 * i + j < PRODUCTS`, and `out` holds a vector at each of the products.
            unsafe { self.simd.write(self.out.as_mut_ptr().add((6 * i + j) * self.step), value) }
        }
    }
}

/// Writes `A' m A` of one channel tile, given product `k` at `from[k * step]`.
#[inline(always)]
pub fn reduce_output<S: Simd>(simd: S, from: &[f32], step: usize, to: CornerMut<'_>) {
    for at in [0, S::WIDTH] {
        let from = &from[at..(PRODUCTS - 1) * step + at + S::WIDTH];
        let mut rows = [[simd.splat(0.0); 4]; 6];
        for (i, row) in rows.iter_mut().enumerate() {
            let mut line = [simd.splat(0.0); 6];
            for (j, value) in line.iter_mut().enumerate() {
                // SAFETY: `6 * i + j < PRODUCTS`, and `from` holds a vector at each of them.
                *value = unsafe { simd.read(from.as_ptr().add((6 * i + j) * step)) };
            }
            *row = output_line(simd, line);
        }
        for j in 0..4 {
            let values = output_line(simd, column(&rows, j));
            if j >= to.left[1] {
                break;
            }
            for (i, value) in values.into_iter().enumerate() {
                if i < to.left[0] {
                    simd.store(&mut to.data[i * to.row + j * S::TILE + at..], value);
                }
            }
        }
    }
}

/// `G g G'` of one channel tile: tap `k` at `from[k * from_step]`, product `k` to `out[k * step]`.
#[inline(always)]
pub fn expand_weight<S: Simd>(
    simd: S,
    (from, from_step): (&[f32], usize),
    (out, step): (&mut [f32], usize),
) {
    for at in [0, S::WIDTH] {
        let mut rows = [[simd.splat(0.0); 6]; 3];
        for (i, row) in rows.iter_mut().enumerate() {
            let tap = |j: usize| simd.load(&from[(3 * i + j) * from_step + at..]);
            *row = weight_line(simd, [tap(0), tap(1), tap(2)]);
        }
        let mut products = Products::new(simd, &mut out[at..], step);
        for j in 0..6 {
            products.write_column(j, weight_line(simd, column(&rows, j)));
        }
    }
}

/// `G' u G` of one channel tile: product `k` at `from[k * from_step]`, tap `k` to `out[k * step]`.
/// The adjoint of [`expand_weight`].
#[inline(always)]
pub fn reduce_weight<S: Simd>(
    simd: S,
    (from, from_step): (&[f32], usize),
    (out, step): (&mut [f32], usize),
) {
    for at in [0, S::WIDTH] {
        let mut rows = [[simd.splat(0.0); 3]; 6];
        for (i, row) in rows.iter_mut().enumerate() {
            let mut line = [simd.splat(0.0); 6];
            for (j, value) in line.iter_mut().enumerate() {
                *value = simd.load(&from[(6 * i + j) * from_step + at..]);
            }
            *row = tap_line(simd, line);
        }
        for j in 0..3 {
            for (i, value) in tap_line(simd, column(&rows, j)).into_iter().enumerate() {
                simd.store(&mut out[(3 * i + j) * step + at..], value);
            }
        }
    }
}

/// Column `j`. A loop rather than `array::from_fn`, which is compiled without the vector features.
#[inline(always)]
fn column<V: Copy, const N: usize, const M: usize>(rows: &[[V; M]; N], j: usize) -> [V; N] {
    let mut column = [rows[0][j]; N];
    for (to, row) in column.iter_mut().zip(rows) {
        *to = row[j];
    }
    column
}

/// `B' d`
#[inline(always)]
fn input_line<S: Simd>(simd: S, d: [S::Vector; 6]) -> [S::Vector; 6] {
    let constant = |value| simd.splat(value);
    let (four, minus_four, minus_five) = (constant(4.0), constant(-4.0), constant(-5.0));
    let even = simd.mul_add(minus_four, d[2], d[4]);
    let odd = simd.mul_add(minus_four, d[1], d[3]);
    let near = simd.sub(d[4], d[2]);
    let far = simd.sub(d[3], d[1]);
    [
        simd.mul_add(four, d[0], simd.mul_add(minus_five, d[2], d[4])),
        simd.add(even, odd),
        simd.sub(even, odd),
        simd.mul_add(constant(2.0), far, near),
        simd.mul_add(constant(-2.0), far, near),
        simd.mul_add(four, d[1], simd.mul_add(minus_five, d[3], d[5])),
    ]
}

/// `A' m`
#[inline(always)]
fn output_line<S: Simd>(simd: S, m: [S::Vector; 6]) -> [S::Vector; 4] {
    let (one, one_odd) = (simd.add(m[1], m[2]), simd.sub(m[1], m[2]));
    let (two, two_odd) = (simd.add(m[3], m[4]), simd.sub(m[3], m[4]));
    [
        simd.add(simd.add(m[0], one), two),
        simd.mul_add(simd.splat(2.0), two_odd, one_odd),
        simd.mul_add(simd.splat(4.0), two, one),
        simd.add(simd.mul_add(simd.splat(8.0), two_odd, one_odd), m[5]),
    ]
}

/// `A y`
#[inline(always)]
fn delta_line<S: Simd>(simd: S, y: [S::Vector; 4]) -> [S::Vector; 6] {
    let (even, odd) = (simd.add(y[0], y[2]), simd.add(y[1], y[3]));
    let even_two = simd.mul_add(simd.splat(4.0), y[2], y[0]);
    let odd_two = simd.mul_add(simd.splat(4.0), y[3], y[1]);
    [
        y[0],
        simd.add(even, odd),
        simd.sub(even, odd),
        simd.mul_add(simd.splat(2.0), odd_two, even_two),
        simd.mul_add(simd.splat(-2.0), odd_two, even_two),
        y[3],
    ]
}

/// `G g`
#[inline(always)]
fn weight_line<S: Simd>(simd: S, g: [S::Vector; 3]) -> [S::Vector; 6] {
    let zero = simd.splat(0.0);
    let times = |factor: f32, value| simd.mul_add(simd.splat(factor), value, zero);
    let (even, odd) = (times(-1.0 / 6.0, simd.add(g[0], g[2])), times(-1.0 / 6.0, g[1]));
    let even_two = simd.mul_add(simd.splat(1.0 / 24.0), g[0], times(1.0 / 6.0, g[2]));
    let odd_two = times(1.0 / 12.0, g[1]);
    [
        times(0.25, g[0]),
        simd.add(even, odd),
        simd.sub(even, odd),
        simd.add(even_two, odd_two),
        simd.sub(even_two, odd_two),
        g[2],
    ]
}

/// `G' u`
#[inline(always)]
fn tap_line<S: Simd>(simd: S, u: [S::Vector; 6]) -> [S::Vector; 3] {
    let factor = |value: f32| simd.splat(value);
    let (one, one_odd) = (simd.add(u[1], u[2]), simd.sub(u[1], u[2]));
    let (two, two_odd) = (simd.add(u[3], u[4]), simd.sub(u[3], u[4]));
    let (zero, sixth) = (factor(0.0), factor(-1.0 / 6.0));
    let (one, one_odd) = (simd.mul_add(sixth, one, zero), simd.mul_add(sixth, one_odd, zero));
    [
        simd.mul_add(factor(0.25), u[0], simd.mul_add(factor(1.0 / 24.0), two, one)),
        simd.mul_add(factor(1.0 / 12.0), two_odd, one_odd),
        simd.add(simd.mul_add(factor(1.0 / 6.0), two, one), u[5]),
    ]
}
