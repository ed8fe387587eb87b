//! Sums over the pixels of a tile, and their combination into batch moments.

use super::simd::Simd;

/// For `y [pixels, TILE]`, writes the rounded mean, and the sums of the deviations from it and of
/// their squares: `out [3, TILE]`.
///
/// The deviations are small where the mean is large, so their squares lose no digits.
#[inline(always)]
pub fn deviations<S: Simd>(simd: S, y: &[f32], out: &mut [f32]) {
    let pixels = y.len() / S::TILE;
    let zero = simd.splat(0.0);
    let mut sums = [[zero; 2]; 4];
    for_pixels(y, S::TILE, |k, pixel| {
        let values = simd.load_tile(pixel);
        sums[k] = [simd.add(sums[k][0], values[0]), simd.add(sums[k][1], values[1])];
    });
    let mut mean = [zero; 2];
    for v in 0..2 {
        let pairs = (simd.add(sums[0][v], sums[1][v]), simd.add(sums[2][v], sums[3][v]));
        mean[v] = simd.mul_add(simd.add(pairs.0, pairs.1), simd.splat(1.0 / pixels as f32), zero);
    }
    let (mut first, mut second) = ([[zero; 2]; 2], [[zero; 2]; 2]);
    for_pixels(y, S::TILE, |k, pixel| {
        let (k, values) = (k % 2, simd.load_tile(pixel));
        for v in 0..2 {
            let deviation = simd.sub(values[v], mean[v]);
            first[k][v] = simd.add(first[k][v], deviation);
            second[k][v] = simd.mul_add(deviation, deviation, second[k][v]);
        }
    });
    for v in 0..2 {
        let to = &mut out[v * S::WIDTH..];
        simd.store(to, mean[v]);
        simd.store(&mut to[S::TILE..], simd.add(first[0][v], first[1][v]));
        simd.store(&mut to[2 * S::TILE..], simd.add(second[0][v], second[1][v]));
    }
}

/// Visits every pixel with its number modulo 4, unrolled so that sums by that number stay in
/// registers.
#[inline(always)]
fn for_pixels(y: &[f32], tile: usize, mut visit: impl FnMut(usize, &[f32])) {
    let fours = y.chunks_exact(4 * tile);
    let rest = fours.remainder();
    for four in fours {
        visit(0, &four[..tile]);
        visit(1, &four[tile..2 * tile]);
        visit(2, &four[2 * tile..3 * tile]);
        visit(3, &four[3 * tile..]);
    }
    for pixel in rest.chunks_exact(tile) {
        visit(0, pixel);
    }
}

/// Two maps of one tile to be correlated.
pub struct Correlation<'a> {
    /// `[h, w, TILE]`, with the distance between its rows.
    pub value: (&'a [f32], usize),
    /// Likewise.
    pub grad: (&'a [f32], usize),
    /// `[h, w]`
    pub size: [usize; 2],
    /// What is subtracted from `value`, `[TILE]`.
    pub centre: &'a [f32],
    /// Whether `grad` counts only where `value` is positive (or NaN).
    pub gated: bool,
}

/// Writes the sums of `grad` and of `grad * (value - centre)`: `out [2, TILE]`.
#[inline(always)]
pub fn correlate<S: Simd>(simd: S, pair: &Correlation<'_>, out: &mut [f32]) {
    let centres = simd.load_tile(pair.centre);
    let mut sums = [[simd.splat(0.0); 2]; 2];
    for row in 0..pair.size[0] {
        let value = pair.value.0[row * pair.value.1..].chunks_exact(S::TILE);
        let grad = pair.grad.0[row * pair.grad.1..].chunks_exact(S::TILE);
        for (value, grad) in value.zip(grad).take(pair.size[1]) {
            let (value, grad) = (simd.load_tile(value), simd.load_tile(grad));
            for v in 0..2 {
                let dz = if pair.gated { simd.gate(value[v], grad[v]) } else { grad[v] };
                sums[0][v] = simd.add(sums[0][v], dz);
                sums[1][v] = simd.mul_add(dz, simd.sub(value[v], centres[v]), sums[1][v]);
            }
        }
    }
    for (k, sum) in sums.into_iter().enumerate() {
        for (v, sum) in sum.into_iter().enumerate() {
            simd.store(&mut out[k * S::TILE + v * S::WIDTH..], sum);
        }
    }
}

/// Moments of a set of pixels for every channel, combined exactly enough to add set after set.
#[derive(Clone, Debug)]
pub struct Moments {
    count: Vec<f64>,
    mean: Vec<f64>,
    squares: Vec<f64>,
}

impl Moments {
    /// Moments of no pixels.
    pub fn empty(channels: usize) -> Self {
        let zeros = vec![0.0; channels];
        Self { count: zeros.clone(), mean: zeros.clone(), squares: zeros }
    }

    /// Adds `pixels` pixels of the channels from `first` on, given their [`deviations`].
    pub fn add_tile(&mut self, first: usize, pixels: usize, sums: &[f32]) {
        let (tile, count) = (sums.len() / 3, pixels as f64);
        for lane in 0..tile {
            let [mean, one, two] = [0, 1, 2].map(|k| f64::from(sums[k * tile + lane]));
            let squares = two - one * one / count;
            self.add(first + lane, [count, mean + one / count, squares]);
        }
    }

    /// Adds the pixels of `other`.
    pub fn merge(&mut self, other: &Self) {
        for c in 0..self.mean.len() {
            self.add(c, [other.count[c], other.mean[c], other.squares[c]]);
        }
    }

    fn add(&mut self, c: usize, [count, mean, squares]: [f64; 3]) {
        let total = self.count[c] + count;
        let (delta, share) = (mean - self.mean[c], count / total);
        self.mean[c] += delta * share;
        self.squares[c] += squares + delta * delta * share * self.count[c];
        self.count[c] = total;
    }

    /// Mean and biased variance of channel `c`.
    pub fn of(&self, c: usize) -> (f64, f64) {
        (self.mean[c], self.squares[c] / self.count[c])
    }
}
