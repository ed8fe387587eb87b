//! The exponential function.

use super::simd::{Simd, WHOLE};

/// Arguments below give zero.
const LEAST: f32 = -87.0;

/// `exp(x)` for `x <= 88`, within 2 units in the last place; zero below -87, NaN for NaN.
///
/// `x = n ln 2 + r` with a whole `n`, so that `exp(x) = 2^n exp(r)`, and a polynomial for the small
/// `r`, with the coefficients of Moshier's Cephes library.
#[inline(always)]
pub fn exp<S: Simd>(simd: S, x: S::Vector) -> S::Vector {
    let number = |value: f32| simd.splat(value);
    let within = simd.max(x, number(LEAST));
    let shifted = simd.mul_add(within, number(std::f32::consts::LOG2_E), number(WHOLE));
    let n = simd.sub(shifted, number(WHOLE));
    // The logarithm of 2 in two parts, the first of few digits, so that its multiples are exact.
    let r = simd.mul_add(n, number(-0.693_359_4), within);
    let r = simd.mul_add(n, number(2.121_944_4e-4), r);
    let mut sum = number(1.987_569_1e-4);
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5, 1.0, 1.0] {
        sum = simd.mul_add(sum, r, number(coefficient));
    }
    let power = simd.mul(sum, simd.power_of_two(shifted));
    simd.gate(simd.sub(x, number(LEAST)), power)
}

#[cfg(test)]
mod tests {
    use super::exp;
    use crate::portable::Portable;
    use crate::simd::Simd;

    fn exp_of(x: f32) -> f32 {
        let mut lanes = [0.0; 4];
        let simd = Portable::<4>;
        simd.store(&mut lanes, exp(simd, simd.splat(x)));
        lanes[0]
    }

    #[test]
    fn exponentials_are_those_of_double_precision() {
        for step in 0..200_000 {
            let x = -87.0 + step as f32 * (175.0 / 200_000.0);
            let expected = f64::from(x).exp();
            let error = (f64::from(exp_of(x)) - expected).abs() / expected;
            assert!(x <= -87.0 || error < 2.4e-7, "exp({x}) is {}, not {expected}", exp_of(x));
        }
    }

    #[test]
    fn the_ends_are_as_they_must_be() {
        assert_eq!(exp_of(0.0), 1.0);
        assert_eq!(exp_of(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_of(-1e30), 0.0);
        assert!(exp_of(f32::NAN).is_nan());
    }
}
