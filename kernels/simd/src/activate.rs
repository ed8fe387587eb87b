//! Batch-norm, ReLU and max-pool of a strip of rows.

use super::simd::Simd;

/// Rows of one channel tile of a convolution's output, with the affine map that normalises them.
pub struct Strip<'a> {
    /// The convolution's output `[rows, w, TILE]`.
    pub y: &'a [f32],
    /// Pixels in a row.
    pub w: usize,
    /// Pools 2x2 windows.
    pub pool: bool,
    /// Factor `[TILE]`.
    pub scale: &'a [f32],
    /// Summand `[TILE]`.
    pub shift: &'a [f32],
}

impl Strip<'_> {
    /// Number of rows, for tiles of `tile` channels.
    #[inline(always)]
    pub fn rows(&self, tile: usize) -> usize {
        self.y.len() / (self.w * tile)
    }
}

/// Writes `relu(y * scale + shift)`, pooled if asked, into rows `out_row` apart.
#[inline(always)]
pub fn activate<S: Simd>(simd: S, strip: &Strip<'_>, out: &mut [f32], out_row: usize) {
    let line = strip.w * S::TILE;
    if strip.pool {
        let pairs = strip.y.chunks_exact(2 * line);
        for (pair, out) in pairs.zip(out.chunks_mut(out_row)) {
            pool_rows(simd, strip, pair.split_at(line), out);
        }
    } else {
        for (row, out) in strip.y.chunks_exact(line).zip(out.chunks_mut(out_row)) {
            for (y, out) in row.chunks_exact(S::WIDTH * 2).zip(out.chunks_exact_mut(S::TILE)) {
                for v in [0, S::WIDTH] {
                    let (scale, shift) =
                        (simd.load(&strip.scale[v..]), simd.load(&strip.shift[v..]));
                    let z = simd.mul_add(simd.load(&y[v..]), scale, shift);
                    simd.store(&mut out[v..], simd.relu(z));
                }
            }
        }
    }
}

#[inline(always)]
fn pool_rows<S: Simd>(simd: S, strip: &Strip<'_>, rows: (&[f32], &[f32]), out: &mut [f32]) {
    let (scale, shift) = (simd.load_tile(strip.scale), simd.load_tile(strip.shift));
    let windows = rows.0.chunks_exact(2 * S::TILE).zip(rows.1.chunks_exact(2 * S::TILE));
    for ((top, bottom), out) in windows.zip(out.chunks_exact_mut(S::TILE)) {
        for v in 0..2 {
            let at = v * S::WIDTH;
            let z = |y: &[f32]| simd.mul_add(simd.load(y), scale[v], shift[v]);
            let upper = simd.max(z(&top[at..]), z(&top[S::TILE + at..]));
            let lower = simd.max(z(&bottom[at..]), z(&bottom[S::TILE + at..]));
            simd.store(&mut out[at..], simd.relu(simd.max(upper, lower)));
        }
    }
}

/// Writes the tangent of [`activate`]: `y' * scale + y * scale' + shift'` where the activation is
/// positive, of the first largest pixel of a window if pooled. `tangent` holds `y'`, `scale'` and
/// `shift'`.
#[inline(always)]
pub fn activate_jvp<S: Simd>(
    simd: S,
    strip: &Strip<'_>,
    tangent: &Strip<'_>,
    out: &mut [f32],
    out_row: usize,
) {
    let (rows, w) = (strip.rows(S::TILE), strip.w);
    let side = if strip.pool { 2 } else { 1 };
    for at in [0, S::WIDTH] {
        let load = |from: &[f32], start: usize| simd.load(&from[start + at..]);
        let (scale, shift) = (load(strip.scale, 0), load(strip.shift, 0));
        let (scale_tangent, shift_tangent) = (load(tangent.scale, 0), load(tangent.shift, 0));
        for row in 0..rows / side {
            for column in 0..w / side {
                let (mut z, mut tangents) = ([shift; 4], [shift; 4]);
                for corner in 0..side * side {
                    let (i, j) = (side * row + corner / 2, side * column + corner % 2);
                    let pixel = (i * w + j) * S::TILE;
                    let y = load(strip.y, pixel);
                    z[corner] = simd.mul_add(y, scale, shift);
                    let turned = simd.mul_add(y, scale_tangent, shift_tangent);
                    tangents[corner] = simd.mul_add(load(tangent.y, pixel), scale, turned);
                }
                let (mut largest, mut chosen) = (z[0], tangents[0]);
                if strip.pool {
                    largest = simd.max(simd.max(z[0], z[1]), simd.max(z[2], z[3]));
                    chosen = simd.splat(0.0);
                    // From last to first, so that the first of equals stays.
                    for corner in [3, 2, 1, 0] {
                        let (here, _) = simd.part(z[corner], largest, tangents[corner]);
                        let (_, others) = simd.part(z[corner], largest, chosen);
                        chosen = simd.add(here, others);
                    }
                }
                let to = &mut out[row * out_row + column * S::TILE + at..];
                simd.store(to, simd.gate(largest, chosen));
            }
        }
    }
}
