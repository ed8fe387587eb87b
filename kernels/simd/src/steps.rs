//! The inner loops of optimizers: parameters, gradients and states side by side, in place.

use super::simd::Simd;

/// `g + l2 * p` for the gradient, and `p * keep` for the parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decay {
    /// Zero if the gradient stays as it is.
    pub l2: f64,
    /// One if the parameter stays as it is.
    pub keep: f64,
}

/// `v = old * v + new * g`, then `d = ahead * v + now * g`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Velocity {
    /// For the old velocity.
    pub old: f64,
    /// For the gradient.
    pub new: f64,
    /// For the velocity, in the direction.
    pub ahead: f64,
    /// For the gradient, in the direction: one or zero.
    pub now: f64,
}

/// `m = beta_1 * m + (1 - beta_1) * g` and `v = beta_2 * v + (1 - beta_2) * g^2`, then the ratio
/// `r = first * m / (root * sqrt(v) + epsilon)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    /// For the old first moment; the gradient has `1 - beta_1`.
    pub beta_1: f64,
    /// For the old second moment; the gradient's square has `1 - beta_2`.
    pub beta_2: f64,
    /// `1 / (1 - beta_1^t)`.
    pub first: f64,
    /// `1 / sqrt(1 - beta_2^t)`.
    pub root: f64,
    /// Added to the root.
    pub epsilon: f64,
}

/// `g + l2 * p`.
#[inline(always)]
fn pulled<S: Simd>(simd: S, g: f32, p: f32, l2: f64) -> f32 {
    // Nothing times infinity is not nothing.
    if l2 as f32 == 0.0 { g } else { simd.scalar_mul_add(p, l2 as f32, g) }
}

/// `p * keep - rate * direction`.
#[inline(always)]
fn moved<S: Simd>(simd: S, p: f32, direction: f32, keep: f64, rate: f64) -> f32 {
    simd.scalar_mul_add(direction, -rate as f32, p * keep as f32)
}

/// The averages of a gradient and of its square.
#[inline(always)]
fn averages<S: Simd>(simd: S, by: Moments, g: f32, [m, v]: [f32; 2]) -> [f32; 2] {
    let m = simd.scalar_mul_add(m, by.beta_1 as f32, g * (1.0 - by.beta_1) as f32);
    [m, simd.scalar_mul_add(v, by.beta_2 as f32, g * g * (1.0 - by.beta_2) as f32)]
}

/// `first * m / (root * sqrt(v) + epsilon)`.
#[inline(always)]
fn ratio<S: Simd>(simd: S, by: Moments, [m, v]: [f32; 2]) -> f32 {
    m * by.first as f32 / simd.scalar_mul_add(v.sqrt(), by.root as f32, by.epsilon as f32)
}

/// SGD: moves `p` against the gradient.
#[inline(always)]
pub fn sgd<S: Simd>(simd: S, decay: Decay, rate: f64, g: &[f32], p: &mut [f32]) {
    for (p, &g) in p.iter_mut().zip(g) {
        *p = moved(simd, *p, pulled(simd, g, *p, decay.l2), decay.keep, rate);
    }
}

/// SGD with momentum: updates the velocity by `g`, then moves `p` against it.
#[inline(always)]
pub fn momentum<S: Simd>(
    simd: S,
    decay: Decay,
    by: Velocity,
    rate: f64,
    g: &[f32],
    p: &mut [f32],
    velocity: &mut [f32],
) {
    for ((p, &g), v) in p.iter_mut().zip(g).zip(velocity) {
        let g = pulled(simd, g, *p, decay.l2);
        *v = simd.scalar_mul_add(*v, by.old as f32, g * by.new as f32);
        let ahead = simd.scalar_mul_add(*v, by.ahead as f32, g);
        let direction = if by.now == 0.0 { *v } else { ahead };
        *p = moved(simd, *p, direction, decay.keep, rate);
    }
}

/// Adam: updates the moments by `g`, then moves `p` against their ratio.
#[inline(always)]
pub fn adam<S: Simd>(
    simd: S,
    decay: Decay,
    by: Moments,
    rate: f64,
    g: &[f32],
    p: &mut [f32],
    [m, v]: [&mut [f32]; 2],
) {
    for ((p, &g), (m, v)) in p.iter_mut().zip(g).zip(m.iter_mut().zip(v)) {
        [*m, *v] = averages(simd, by, pulled(simd, g, *p, decay.l2), [*m, *v]);
        *p = moved(simd, *p, ratio(simd, by, [*m, *v]), decay.keep, rate);
    }
}

/// First pass of LAMB: updates the moments, given the gradient and the parameter, and writes the sums of
/// the squares of the parameter and of the direction.
#[inline(always)]
pub fn lamb_direction<S: Simd>(
    simd: S,
    by: Moments,
    pull: f64,
    [g, p]: [&[f32]; 2],
    [m, v]: [&mut [f32]; 2],
    squares: &mut [f64; 2],
) {
    const BLOCK: usize = 256;
    *squares = [0.0; 2];
    let mut direction = [0.0; BLOCK];
    let given = g.chunks(BLOCK).zip(p.chunks(BLOCK));
    let moments = m.chunks_mut(BLOCK).zip(v.chunks_mut(BLOCK));
    for ((g, p), (m, v)) in given.zip(moments) {
        let of = direction.iter_mut().zip(p).zip(g).zip(m.iter_mut().zip(v));
        for (((direction, &p), &g), (m, v)) in of {
            [*m, *v] = averages(simd, by, g, [*m, *v]);
            *direction = pulled(simd, ratio(simd, by, [*m, *v]), p, pull);
        }
        let mut sums = [0.0; 2];
        square_sum(simd, p, &mut sums[0]);
        square_sum(simd, &direction[..g.len()], &mut sums[1]);
        *squares = [squares[0] + sums[0], squares[1] + sums[1]];
    }
}

/// Second pass of LAMB: moves `p` by `rate` against the direction that its moments give.
#[inline(always)]
pub fn lamb_apply<S: Simd>(
    simd: S,
    by: Moments,
    pull: f64,
    rate: f64,
    [m, v]: [&[f32]; 2],
    p: &mut [f32],
) {
    for (p, (&m, &v)) in p.iter_mut().zip(m.iter().zip(v)) {
        *p = moved(simd, *p, pulled(simd, ratio(simd, by, [m, v]), *p, pull), 1.0, rate);
    }
}

/// Multiplies `x`.
#[inline(always)]
pub fn scale<S: Simd>(_: S, factor: f32, x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x *= factor);
}

/// Writes the sum of the squares in double precision, where none of them overflows or is rounded.
///
/// The order is the same for all instructions.
#[inline(always)]
pub fn square_sum<S: Simd>(_: S, x: &[f32], out: &mut f64) {
    let mut lanes = [0.0; 16];
    let tiles = x.chunks_exact(lanes.len());
    let rest = tiles.remainder();
    for tile in tiles {
        for (lane, &x) in lanes.iter_mut().zip(tile) {
            *lane += f64::from(x) * f64::from(x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane += f64::from(x) * f64::from(x);
    }
    *out = lanes.iter().sum();
}
