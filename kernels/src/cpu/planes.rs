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
