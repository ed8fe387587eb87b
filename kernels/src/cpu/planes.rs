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
    fn plane_affine(&self, map: Line, x: &mut [f32]);

    /// See [`plane_combine`].
    fn plane_combine(&self, of_a: Line, b: (&[f32], Line), a: &mut [f32]);

    /// See [`interleave`](super::interleave::interleave).
    fn interleave(&self, planes: &[f32], grid: &Grid, map: &mut [f32]);

    /// See [`separate`](super::interleave::separate).
    fn separate(&self, map: &[f32], grid: &Grid, planes: &mut [f32]);

    /// See [`interleave_at`](super::interleave::interleave_at).
    fn interleave_at(&self, planes: &[f32], places: &[usize], map: &mut [f32]);

    /// See [`separate_at`](super::interleave::separate_at).
    fn separate_at(&self, map: &[f32], places: &[usize], planes: &mut [f32]);

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

impl Line {
    /// The image of one number.
    #[inline(always)]
    fn of(&self, x: f32) -> f32 {
        (x - self.centre) * self.scale + self.shift
    }
}

/// Replaces `x` by its image under `map`.
#[inline(always)]
pub fn plane_affine<S: Simd>(simd: S, map: Line, x: &mut [f32]) {
    let mut tiles = x.chunks_exact_mut(S::WIDTH);
    for x in &mut tiles {
        let y = through(simd, simd.load(x), map);
        simd.store(x, y);
    }
    for x in tiles.into_remainder() {
        *x = map.of(*x);
    }
}

/// Replaces `a` by the sum of the images of `a` and `b` under their maps.
#[inline(always)]
pub fn plane_combine<S: Simd>(simd: S, of_a: Line, (b, of_b): (&[f32], Line), a: &mut [f32]) {
    let (b_tiles, mut a_tiles) = (b.chunks_exact(S::WIDTH), a.chunks_exact_mut(S::WIDTH));
    let rest = b_tiles.remainder();
    for (a, b) in (&mut a_tiles).zip(b_tiles) {
        let sum = simd.add(through(simd, simd.load(a), of_a), through(simd, simd.load(b), of_b));
        simd.store(a, sum);
    }
    for (a, b) in a_tiles.into_remainder().iter_mut().zip(rest) {
        *a = of_a.of(*a) + of_b.of(*b);
    }
}

#[inline(always)]
fn through<S: Simd>(simd: S, x: S::Vector, map: Line) -> S::Vector {
    let deviation = simd.sub(x, simd.splat(map.centre));
    simd.mul_add(deviation, simd.splat(map.scale), simd.splat(map.shift))
}

/// Implements [`Planes`] for a [`Simd`], as
/// [`implement_body`](super::instruction_set::implement_body) does its loops.
macro_rules! implement_planes {
    ($simd:ty, ($(#[$feature:meta])?)) => {
        const _: () = {
            use super::instruction_set::compile_loop;
            use super::interleave::{Grid, interleave, interleave_at, separate, separate_at};
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
                    fn plane_affine(map: Line, x: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn plane_combine(of_a: Line, b: (&[f32], Line), a: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn interleave(planes: &[f32], grid: &Grid, map: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn separate(map: &[f32], grid: &Grid, planes: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn interleave_at(planes: &[f32], places: &[usize], map: &mut [f32]));
                compile_loop!($simd, ($(#[$feature])?),
                    fn separate_at(map: &[f32], places: &[usize], planes: &mut [f32]));
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
