//! The inner loops over single planes: the pixels of one channel of one image, in a row.

use super::simd::Simd;

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
    fn of<S: Simd>(&self, simd: S, x: f32) -> f32 {
        simd.scalar_mul_add(x - self.centre, self.scale, self.shift)
    }
}

/// Replaces `x` by its image under `map`.
#[inline(always)]
pub fn plane_affine<S: Simd>(simd: S, map: Line, x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x = map.of(simd, *x));
}

/// Replaces `a` by the sum of the images of `a` and `b` under their maps.
#[inline(always)]
pub fn plane_combine<S: Simd>(simd: S, of_a: Line, (b, of_b): (&[f32], Line), a: &mut [f32]) {
    for (a, &b) in a.iter_mut().zip(b) {
        *a = of_a.of(simd, *a) + of_b.of(simd, b);
    }
}
