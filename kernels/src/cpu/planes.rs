//! The inner loops over single planes: the pixels of one channel of one image, in a row.

use super::interleave::Grid;
use super::simd::Simd;

/// The loops over planes for one set of vector instructions.
pub trait Planes {
    /// See [`plane_sum`](super::plane_sums::plane_sum).
    fn plane_sum(&self, x: &[f32], out: &mut f32);

    /// See [`plane_deviations`](super::plane_sums::plane_deviations).
    fn plane_deviations(&self, x: &[f32], out: &mut [f32]);

    /// See [`plane_correlate`](super::plane_sums::plane_correlate).
    fn plane_correlate(&self, g: &[f32], x: &[f32], centre: f32, out: &mut [f32]);

    /// See [`plane_affine`].
    fn plane_affine(&self, x: &[f32], map: Line, out: &mut [f32]);

    /// See [`plane_combine`].
    fn plane_combine(&self, a: (&[f32], Line), b: (&[f32], Line), out: &mut [f32]);

    /// See [`interleave`](super::interleave::interleave).
    fn interleave(&self, planes: &[f32], grid: &Grid, map: &mut [f32]);

    /// See [`separate`](super::interleave::separate).
    fn separate(&self, map: &[f32], grid: &Grid, planes: &mut [f32]);

    /// See [`pool`](super::windows::pool).
    fn pool(&self, x: &[f32], w: usize, out: &mut [f32]);

    /// See [`scatter`](super::windows::scatter).
    fn scatter(&self, x: &[f32], w: usize, dy: &[f32], dx: &mut [f32]);

    /// See [`gather`](super::windows::gather).
    fn gather(&self, x: &[f32], w: usize, u: &[f32], out: &mut [f32]);
}

/// The map `(x - centre) * scale + shift`.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub centre: f32,
    pub scale: f32,
    pub shift: f32,
}

/// Writes the image of `x` under `map`.
#[inline(always)]
pub fn plane_affine<S: Simd>(simd: S, x: &[f32], map: Line, out: &mut [f32]) {
    let line = |x| through(simd, x, map);
    let (tiles, rest) = (x.chunks_exact(S::WIDTH), x.chunks_exact(S::WIDTH).remainder());
    let mut to = out.chunks_exact_mut(S::WIDTH);
    for (x, to) in tiles.zip(&mut to) {
        simd.store(to, line(simd.load(x)));
    }
    for (x, to) in rest.iter().zip(to.into_remainder()) {
        *to = (x - map.centre) * map.scale + map.shift;
    }
}

/// Writes the sum of the images of `a` and `b` under their maps.
#[inline(always)]
pub fn plane_combine<S: Simd>(
    simd: S,
    (a, of_a): (&[f32], Line),
    (b, of_b): (&[f32], Line),
    out: &mut [f32],
) {
    let (a_tiles, b_tiles) = (a.chunks_exact(S::WIDTH), b.chunks_exact(S::WIDTH));
    let rest = a_tiles.remainder().iter().zip(b_tiles.remainder());
    let mut to = out.chunks_exact_mut(S::WIDTH);
    for ((a, b), to) in a_tiles.zip(b_tiles).zip(&mut to) {
        let sum = simd.add(through(simd, simd.load(a), of_a), through(simd, simd.load(b), of_b));
        simd.store(to, sum);
    }
    for ((a, b), to) in rest.zip(to.into_remainder()) {
        let a = (a - of_a.centre) * of_a.scale + of_a.shift;
        *to = a + ((b - of_b.centre) * of_b.scale + of_b.shift);
    }
}

#[inline(always)]
fn through<S: Simd>(simd: S, x: S::Vector, map: Line) -> S::Vector {
    let deviation = simd.sub(x, simd.splat(map.centre));
    simd.mul_add(deviation, simd.splat(map.scale), simd.splat(map.shift))
}

/// Implements [`Planes`] for a [`Simd`], as
/// [`implement_body`](super::body::implement_body) does its loops.
macro_rules! implement_planes {
    ($simd:ty, ($(#[$feature:meta])?)) => {
        const _: () = {
            use super::body::compile_loop;
            use super::interleave::{Grid, interleave, separate};
            use super::plane_sums::{plane_correlate, plane_deviations, plane_sum};
            use super::planes::{Line, Planes, plane_affine, plane_combine};
            use super::windows::{gather, pool, scatter};

            impl Planes for $simd {
                compile_loop!($simd, ($(#[$feature])?),
                    fn plane_sum(x: &[f32], out: &mut f32));
                compile_loop!($simd, ($(#[$feature])?),
                    fn plane_deviations(x: &[f32], out: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn plane_correlate(g: &[f32], x: &[f32], centre: f32, out: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn plane_affine(x: &[f32], map: Line, out: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn plane_combine(a: (&[f32], Line), b: (&[f32], Line), out: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn interleave(planes: &[f32], grid: &Grid, map: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn separate(map: &[f32], grid: &Grid, planes: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn pool(x: &[f32], w: usize, out: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn scatter(x: &[f32], w: usize, dy: &[f32], dx: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn gather(x: &[f32], w: usize, u: &[f32], out: &mut [f32]));
            }
        };
    };
}
pub(super) use implement_planes;
