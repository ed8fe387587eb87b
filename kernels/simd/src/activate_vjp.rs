//! Gradient of batch-norm, ReLU and max-pool: from a block's output to its convolution's output.

use super::activate::Strip;
use super::simd::Simd;

/// Coefficients of `dy = gain * dz + slope * y + offset`, each `[TILE]`.
///
/// With batch statistics the mean and the variance depend on every `y`, hence the last two.
pub struct Coefficients<'a> {
    /// Factor of `dz`.
    pub gain: &'a [f32],
    /// Factor of `y`.
    pub slope: &'a [f32],
    /// Summand.
    pub offset: &'a [f32],
}

/// Map that the gradient is written to.
pub struct Target<'a> {
    /// The map from its first pixel on.
    pub d: &'a mut [f32],
    /// Floats from one row to the next.
    pub row: usize,
    /// Floats from one pixel to the next.
    pub pixel: usize,
}

/// Vectors of `Strip` and `Coefficients` for half a tile.
#[derive(Clone, Copy)]
struct Vectors<V> {
    scale: V,
    shift: V,
    gain: V,
    slope: V,
    offset: V,
}

/// Writes `dy` for the strip, given the gradient `grad` of the block's output.
///
/// `dz` goes to the first largest pixel of a window, as in PyTorch, if it is above zero; which one
/// that is follows from `y`, so no mask is stored.
#[inline(always)]
pub fn activate_vjp<S: Simd>(
    simd: S,
    strip: &Strip<'_>,
    grad: &[f32],
    coefficients: &Coefficients<'_>,
    target: Target<'_>,
) {
    for at in [0, S::WIDTH] {
        let load = |from: &[f32]| simd.load(&from[at..]);
        let vectors = Vectors {
            scale: load(strip.scale),
            shift: load(strip.shift),
            gain: load(coefficients.gain),
            slope: load(coefficients.slope),
            offset: load(coefficients.offset),
        };
        let target = Target { d: &mut target.d[at..], ..target };
        if strip.pool {
            pooled(simd, (strip, at), grad, vectors, target);
        } else {
            plain(simd, (strip, at), grad, vectors, target);
        }
    }
}

/// `dy` of the pixels.
#[inline(always)]
fn map_gradient<S: Simd>(simd: S, y: S::Vector, dz: S::Vector, k: Vectors<S::Vector>) -> S::Vector {
    simd.mul_add(k.gain, dz, simd.mul_add(k.slope, y, k.offset))
}

#[inline(always)]
fn plain<S: Simd>(
    simd: S,
    (strip, at): (&Strip<'_>, usize),
    grad: &[f32],
    k: Vectors<S::Vector>,
    target: Target<'_>,
) {
    for row in 0..strip.rows(S::TILE) {
        for column in 0..strip.w {
            let pixel = (row * strip.w + column) * S::TILE;
            let y = simd.load(&strip.y[pixel + at..]);
            let z = simd.mul_add(y, k.scale, k.shift);
            let dz = simd.gate(z, simd.load(&grad[pixel + at..]));
            let to = row * target.row + column * target.pixel;
            simd.store(&mut target.d[to..], map_gradient(simd, y, dz, k));
        }
    }
}

#[inline(always)]
fn pooled<S: Simd>(
    simd: S,
    (strip, at): (&Strip<'_>, usize),
    grad: &[f32],
    k: Vectors<S::Vector>,
    target: Target<'_>,
) {
    let (rows, w) = (strip.rows(S::TILE), strip.w);
    for row in 0..rows / 2 {
        for column in 0..w / 2 {
            let (mut y, mut z) = ([k.shift; 4], [k.shift; 4]);
            for (corner, (y, z)) in y.iter_mut().zip(&mut z).enumerate() {
                let (i, j) = (2 * row + corner / 2, 2 * column + corner % 2);
                *y = simd.load(&strip.y[(i * w + j) * S::TILE + at..]);
                *z = simd.mul_add(*y, k.scale, k.shift);
            }
            let largest = simd.max(simd.max(z[0], z[1]), simd.max(z[2], z[3]));
            let grad = simd.load(&grad[(row * (w / 2) + column) * S::TILE + at..]);
            let mut left = simd.gate(largest, grad);
            for corner in 0..4 {
                let (dz, others) = simd.part(z[corner], largest, left);
                left = others;
                let (i, j) = (2 * row + corner / 2, 2 * column + corner % 2);
                let to = i * target.row + j * target.pixel;
                simd.store(&mut target.d[to..], map_gradient(simd, y[corner], dz, k));
            }
        }
    }
    let dropped_column = (0..rows).map(|row| (row, w - 1)).take(if w % 2 == 1 { rows } else { 0 });
    let dropped_row = (0..w).map(|column| (rows - 1, column)).take((rows % 2) * w);
    for (row, column) in dropped_column.chain(dropped_row) {
        let y = simd.load(&strip.y[(row * w + column) * S::TILE + at..]);
        let to = row * target.row + column * target.pixel;
        simd.store(&mut target.d[to..], map_gradient(simd, y, simd.splat(0.0), k));
    }
}

/// Adds `part + slope * y` to the target, for maps `part` and `y` `[rows, w, TILE]`.
#[inline(always)]
pub fn add_scaled<S: Simd>(
    simd: S,
    part: &[f32],
    (y, slope): (&[f32], &[f32]),
    w: usize,
    target: Target<'_>,
) {
    let slope = simd.load_tile(slope);
    let rows = part.chunks_exact(w * S::TILE).zip(y.chunks_exact(w * S::TILE));
    for (row, (part, y)) in rows.enumerate() {
        let pixels = part.chunks_exact(S::TILE).zip(y.chunks_exact(S::TILE));
        for (column, (part, y)) in pixels.enumerate() {
            let (part, y) = (simd.load_tile(part), simd.load_tile(y));
            let sum =
                [simd.mul_add(slope[0], y[0], part[0]), simd.mul_add(slope[1], y[1], part[1])];
            let to = row * target.row + column * target.pixel;
            simd.add_tile(&mut target.d[to..], sum);
        }
    }
}
