//! The Gaussian error linear unit.

use super::exponential::exp;
use super::simd::Simd;

/// Coefficients of `erfc(z) = (t a1 + t^2 a2 + ...) exp(-z^2)` with `t = 1 / (1 + 0.3275911 z)`, the last first, each
/// halved: Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26, within 1.5e-7.
const HALVES: [f32; 5] = [0.530_702_7, -0.726_576, 0.710_706_9, -0.142_248_37, 0.127_414_8];

/// From here on, what is missing to `x` or to zero is below the smallest number.
const FAR: f32 = 30.0;

/// `x Phi(x)`, within 2e-7 times the larger of 1 and `|x|`; NaN for NaN.
#[inline(always)]
pub fn gelu<S: Simd>(simd: S, x: S::Vector) -> S::Vector {
    let zero = simd.splat(0.0);
    let distance = simd.min(simd.max(x, simd.sub(zero, x)), simd.splat(FAR));
    let by = simd.splat(0.327_591_1 * std::f32::consts::FRAC_1_SQRT_2);
    let one = simd.splat(1.0);
    let t = simd.div(one, simd.mul_add(distance, by, one));
    let mut sum = simd.splat(HALVES[0]);
    for coefficient in &HALVES[1..] {
        sum = simd.mul_add(sum, t, simd.splat(*coefficient));
    }
    let square = simd.mul(distance, distance);
    let normal = exp(simd, simd.mul(square, simd.splat(-0.5)));
    // Phi(-|x|), by which the result is short of max(x, 0).
    let tail = simd.mul(simd.mul(sum, t), normal);
    simd.sub(simd.relu(x), simd.mul(distance, tail))
}

/// `x sigmoid(1.702 x)`; NaN for NaN.
#[inline(always)]
pub fn quick_gelu<S: Simd>(simd: S, x: S::Vector) -> S::Vector {
    // Below -50 the exponential would be too large; the result is zero there.
    let power = simd.mul(simd.max(x, simd.splat(-50.0)), simd.splat(-1.702));
    let one = simd.splat(1.0);
    simd.div(x, simd.add(one, exp(simd, power)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::portable::Portable;

    fn lane_of(f: impl Fn(Portable<4>, [f32; 4]) -> [f32; 4], x: f32) -> f32 {
        f(Portable, [x; 4])[0]
    }

    /// `Phi(x)`, by Simpson's rule from -12 on.
    fn phi(x: f64) -> f64 {
        let (from, steps) = (-12.0, 4000);
        let width = (x - from) / f64::from(steps);
        let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let inner = |step: i32| {
            let weight = if step % 2 == 1 { 4.0 } else { 2.0 };
            weight * density(from + f64::from(step) * width)
        };
        let sum: f64 = (1..steps).map(inner).sum();
        (density(from) + sum + density(x)) * width / 3.0
    }

    #[test]
    fn values_are_those_of_double_precision() {
        for step in -400..=400 {
            let x = step as f32 * 0.025;
            let exact = f64::from(x) * phi(f64::from(x));
            let off = (f64::from(lane_of(gelu, x)) - exact).abs();
            assert!(off < 2e-7 * f64::from(x.abs().max(1.0)), "gelu({x}): off by {off}");
            let quick = f64::from(x) / (1.0 + (-1.702 * f64::from(x)).exp());
            let off = (f64::from(lane_of(quick_gelu, x)) - quick).abs();
            assert!(off < 3e-7 * f64::from(x.abs().max(1.0)), "quick_gelu({x}): off by {off}");
        }
    }

    #[test]
    fn the_ends_are_as_they_must_be() {
        for f in [gelu::<Portable<4>>, quick_gelu] {
            assert_eq!(lane_of(f, f32::INFINITY), f32::INFINITY);
            assert_eq!(lane_of(f, 1e30), 1e30);
            assert_eq!(lane_of(f, 0.0), 0.0);
            assert!(lane_of(f, -1e3).abs() < 1e-20);
            assert!(lane_of(f, f32::NAN).is_nan());
        }
    }
}
