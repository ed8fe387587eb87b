//! Maps of a plane, the pixels of one channel of one image in a row, and sums over it.

use super::simd::Simd;

/// The map `(x - centre) * scale + shift`.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Subtracted first.
    pub centre: f32,
    /// Factor of the difference.
    pub scale: f32,
    /// Added last.
    pub shift: f32,
}

impl Line {
    /// The image of one number.
    #[inline(always)]
    fn image<S: Simd>(&self, simd: S, x: f32) -> f32 {
        simd.scalar_mul_add(x - self.centre, self.scale, self.shift)
    }
}

/// Replaces `x` by its image under `map`.
#[inline(always)]
pub fn plane_affine<S: Simd>(simd: S, map: Line, x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x = map.image(simd, *x));
}

/// Replaces `a` by the sum of the images of `a` and `b` under their maps.
#[inline(always)]
pub fn plane_combine<S: Simd>(simd: S, of_a: Line, (b, of_b): (&[f32], Line), a: &mut [f32]) {
    for (a, &b) in a.iter_mut().zip(b) {
        *a = of_a.image(simd, *a) + of_b.image(simd, b);
    }
}

/// Writes the sum of `x`.
#[inline(always)]
pub fn plane_sum<S: Simd>(simd: S, x: &[f32], out: &mut f32) {
    let mut sums = [simd.splat(0.0); 2];
    let tiles = x.chunks_exact(S::TILE);
    let rest: f32 = tiles.remainder().iter().sum();
    for tile in tiles {
        let values = simd.load_tile(tile);
        sums = [simd.add(sums[0], values[0]), simd.add(sums[1], values[1])];
    }
    *out = fold(simd, sums) + rest;
}

/// Writes the rounded mean of `x`, and the sums of the deviations from it and of their squares, as
/// [`deviations`](super::moments::deviations) does for tiles.
#[inline(always)]
pub fn plane_deviations<S: Simd>(simd: S, x: &[f32], out: &mut [f32]) {
    let mut mean = 0.0;
    plane_sum(simd, x, &mut mean);
    mean /= x.len() as f32;
    let zero = [simd.splat(0.0); 2];
    let (mut first, mut second, centre) = (zero, zero, simd.splat(mean));
    let tiles = x.chunks_exact(S::TILE);
    let (mut one, mut two) = (0.0, 0.0);
    for x in tiles.remainder() {
        let deviation = x - mean;
        one += deviation;
        two += deviation * deviation;
    }
    for tile in tiles {
        let values = simd.load_tile(tile);
        for v in 0..2 {
            let deviation = simd.sub(values[v], centre);
            first[v] = simd.add(first[v], deviation);
            second[v] = simd.mul_add(deviation, deviation, second[v]);
        }
    }
    out[..3].copy_from_slice(&[mean, one + fold(simd, first), two + fold(simd, second)]);
}

/// Writes the sums of `g` and of `g * (x - centre)`.
#[inline(always)]
pub fn plane_correlate<S: Simd>(simd: S, g: &[f32], x: &[f32], centre: f32, out: &mut [f32]) {
    let zero = [simd.splat(0.0); 2];
    let (mut first, mut second, centres) = (zero, zero, simd.splat(centre));
    let (g_tiles, x_tiles) = (g.chunks_exact(S::TILE), x.chunks_exact(S::TILE));
    let (mut one, mut two) = (0.0, 0.0);
    for (g, x) in g_tiles.remainder().iter().zip(x_tiles.remainder()) {
        one += g;
        two += g * (x - centre);
    }
    for (g, x) in g_tiles.zip(x_tiles) {
        let (g, x) = (simd.load_tile(g), simd.load_tile(x));
        for v in 0..2 {
            first[v] = simd.add(first[v], g[v]);
            second[v] = simd.mul_add(g[v], simd.sub(x[v], centres), second[v]);
        }
    }
    out[..2].copy_from_slice(&[one + fold(simd, first), two + fold(simd, second)]);
}

/// The sum of all lanes.
#[inline(always)]
fn fold<S: Simd>(simd: S, sums: [S::Vector; 2]) -> f32 {
    simd.sum(simd.add(sums[0], sums[1]))
}
