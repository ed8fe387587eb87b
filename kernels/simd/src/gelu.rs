//! The Gaussian error linear unit.

use super::epilogue::Activation;
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
    let [distance, tail, _] = tail(simd, x);
    simd.sub(simd.relu(x), simd.mul(distance, tail))
}

/// `|x|`, at most [`FAR`]; `Phi(-|x|)`, by which the result is short of `max(x, 0)`; `exp(-x^2 / 2)`.
#[inline(always)]
fn tail<S: Simd>(simd: S, x: S::Vector) -> [S::Vector; 3] {
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
    [distance, simd.mul(simd.mul(sum, t), normal), normal]
}

/// The derivative of [`gelu`], `Phi(x) + x exp(-x^2 / 2) / sqrt(2 pi)`.
#[inline(always)]
fn gelu_slope<S: Simd>(simd: S, x: S::Vector) -> S::Vector {
    let [_, tail, normal] = tail(simd, x);
    let rest = simd.sub(simd.splat(1.0), simd.add(tail, tail));
    let share = simd.add(tail, simd.gate(x, rest));
    let density = simd.mul(normal, simd.splat(0.398_942_3));
    // Where the density is zero, `x` may be too large for a product.
    let x = simd.min(simd.max(x, simd.splat(-FAR)), simd.splat(FAR));
    simd.mul_add(x, density, share)
}

/// `x sigmoid(1.702 x)`; NaN for NaN.
#[inline(always)]
pub fn quick_gelu<S: Simd>(simd: S, x: S::Vector) -> S::Vector {
    // Below -50 the exponential would be too large; the result is zero there.
    let power = simd.mul(simd.max(x, simd.splat(-50.0)), simd.splat(-1.702));
    let one = simd.splat(1.0);
    simd.div(x, simd.add(one, exp(simd, power)))
}

/// The derivative of [`quick_gelu`], `s + 1.702 x s (1 - s)` with `s = sigmoid(1.702 x)`.
#[inline(always)]
fn quick_gelu_slope<S: Simd>(simd: S, x: S::Vector) -> S::Vector {
    // Beyond 50 the slope is 0 or 1, and `x` may be too large for a product.
    let x = simd.min(simd.max(x, simd.splat(-50.0)), simd.splat(50.0));
    let x = simd.mul(x, simd.splat(1.702));
    let (zero, one) = (simd.splat(0.0), simd.splat(1.0));
    let share = simd.div(one, simd.add(one, exp(simd, simd.sub(zero, x))));
    simd.mul_add(simd.mul(x, share), simd.sub(one, share), share)
}

/// Replaces each value by its activation.
#[inline(always)]
pub fn activate_all<S: Simd>(simd: S, activation: Activation, x: &mut [f32]) {
    for at in (0..x.len()).step_by(S::WIDTH) {
        let count = (x.len() - at).min(S::WIDTH);
        // SAFETY: so many floats are left.
        unsafe {
            let place = x.as_mut_ptr().add(at);
            let x = simd.read_up_to(place, count);
            let y = match activation {
                Activation::Identity => x,
                Activation::Gelu => gelu(simd, x),
                Activation::QuickGelu => quick_gelu(simd, x),
            };
            simd.write_up_to(place, count, y);
        }
    }
}

/// Multiplies each gradient by the derivative of the activation at `x`.
#[inline(always)]
pub fn activate_all_vjp<S: Simd>(simd: S, activation: Activation, x: &[f32], dy: &mut [f32]) {
    assert_eq!(x.len(), dy.len(), "a gradient of each value");
    for at in (0..x.len()).step_by(S::WIDTH) {
        let count = (x.len() - at).min(S::WIDTH);
        // SAFETY: so many floats are left of both.
        unsafe {
            let place = dy.as_mut_ptr().add(at);
            let x = simd.read_up_to(x.as_ptr().add(at), count);
            let slope = match activation {
                Activation::Identity => simd.splat(1.0),
                Activation::Gelu => gelu_slope(simd, x),
                Activation::QuickGelu => quick_gelu_slope(simd, x),
            };
            simd.write_up_to(place, count, simd.mul(simd.read_up_to(place, count), slope));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction_set::bodies;
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
    fn derivatives_are_those_of_double_precision() {
        let xs: Vec<f32> = (-401..=400).map(|step| step as f32 * 0.025).collect();
        for body in bodies() {
            let slopes = |activation| {
                let mut dy = vec![2.0; xs.len()];
                body.activate_all_vjp(activation, &xs, &mut dy);
                dy
            };
            let expected = |x: f64| phi(x) + x * (-0.5 * x * x).exp() * 0.398_942_280_4;
            for (x, slope) in xs.iter().zip(slopes(Activation::Gelu)) {
                let off = (f64::from(slope) - 2.0 * expected(f64::from(*x))).abs();
                assert!(off < 2e-6, "gelu'({x}): off by {off}");
            }
            for (x, slope) in xs.iter().zip(slopes(Activation::QuickGelu)) {
                let x = 1.702 * f64::from(*x);
                let share = 1.0 / (1.0 + (-x).exp());
                let off = (f64::from(slope) - 2.0 * (share + x * share * (1.0 - share))).abs();
                assert!(off < 2e-6, "quick_gelu'({x}): off by {off}");
            }
            assert!(slopes(Activation::Identity).iter().all(|slope| *slope == 2.0));
        }
    }

    #[test]
    fn far_derivatives_are_zero_and_one() {
        for body in bodies() {
            for activation in [Activation::Gelu, Activation::QuickGelu] {
                let mut dy = [1.0; 7];
                let xs = [f32::MIN, -1e30, -1e3, 0.0, 1e3, 1e30, f32::MAX];
                body.activate_all_vjp(activation, &xs, &mut dy);
                let expected = [0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 1.0];
                let near = dy.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6);
                assert!(near, "{activation:?} {dy:?}");
            }
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
