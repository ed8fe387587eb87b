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
    let fours = y.chunks_exact(4 * S::TILE);
    let rest = fours.remainder();
    for four in fours {
        for (k, sum) in sums.iter_mut().enumerate() {
            *sum = with_pixel(simd, *sum, &four[k * S::TILE..]);
        }
    }
    for pixel in rest.chunks_exact(S::TILE) {
        sums[0] = with_pixel(simd, sums[0], pixel);
    }
    let mut mean = [zero; 2];
    for v in 0..2 {
        let pairs = (simd.add(sums[0][v], sums[1][v]), simd.add(sums[2][v], sums[3][v]));
        mean[v] = simd.mul_add(simd.add(pairs.0, pairs.1), simd.splat(1.0 / pixels as f32), zero);
    }
    let mut powers = [[[zero; 2]; 2]; 2];
    let pairs = y.chunks_exact(2 * S::TILE);
    let rest = pairs.remainder();
    for pair in pairs {
        for (k, powers) in powers.iter_mut().enumerate() {
            *powers = with_deviation(simd, *powers, mean, &pair[k * S::TILE..]);
        }
    }
    if !rest.is_empty() {
        powers[0] = with_deviation(simd, powers[0], mean, rest);
    }
    let [[first, second], [other_first, other_second]] = powers;
    for v in 0..2 {
        let to = &mut out[v * S::WIDTH..];
        simd.store(to, mean[v]);
        simd.store(&mut to[S::TILE..], simd.add(first[v], other_first[v]));
        simd.store(&mut to[2 * S::TILE..], simd.add(second[v], other_second[v]));
    }
}

/// The sum with one more pixel.
#[inline(always)]
fn with_pixel<S: Simd>(simd: S, sum: [S::Vector; 2], pixel: &[f32]) -> [S::Vector; 2] {
    let values = simd.load_tile(pixel);
    [simd.add(sum[0], values[0]), simd.add(sum[1], values[1])]
}

/// The sums of the deviations and of their squares with one more pixel.
#[inline(always)]
fn with_deviation<S: Simd>(
    simd: S,
    [mut first, mut second]: [[S::Vector; 2]; 2],
    mean: [S::Vector; 2],
    pixel: &[f32],
) -> [[S::Vector; 2]; 2] {
    let values = simd.load_tile(pixel);
    for v in 0..2 {
        let deviation = simd.sub(values[v], mean[v]);
        first[v] = simd.add(first[v], deviation);
        second[v] = simd.mul_add(deviation, deviation, second[v]);
    }
    [first, second]
}

/// Two maps of one tile to be correlated.
pub struct Correlation<'a> {
    /// `[h, w, TILE]`, with the distance between its rows.
    pub value: (&'a [f32], usize),
    /// Likewise.
    pub grad: (&'a [f32], usize),
    /// `[h, w]`
    pub size: [usize; 2],
    /// Subtrahend of `value`, `[TILE]`.
    pub centre: &'a [f32],
    /// Counts `grad` only where `value` is positive (or NaN).
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
    pub fn channel(&self, c: usize) -> (f64, f64) {
        (self.mean[c], self.squares[c] / self.count[c])
    }
}
