//! ReLU and the gate of its gradient.

use super::simd::Simd;

/// `value` where `by` is positive or NaN, else zero.
///
/// The smaller of its bits and of all ones or none: of a plain choice the compiler makes a masked
/// store, which is slow on some processors.
#[inline(always)]
fn open(by: f32, value: f32) -> f32 {
    f32::from_bits(value.to_bits().min(u32::from(by <= 0.0).wrapping_sub(1)))
}

/// `max(x, 0)`, or NaN where `x` is NaN.
#[inline(always)]
pub fn rectify<S: Simd>(_: S, x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x = open(*x, *x));
}

/// Zeros the values, as many as there are of `by`, where that is neither positive nor NaN.
#[inline(always)]
pub fn gate<S: Simd>(_: S, by: &[f32], values: &mut [f32]) {
    for (value, &by) in values[..by.len()].iter_mut().zip(by) {
        *value = open(by, *value);
    }
}

/// `x` where it is positive or NaN, `slope * x` elsewhere, for a slope from 0 to 1.
#[inline(always)]
pub fn leaky<S: Simd>(_: S, slope: f32, x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x *= if *x <= 0.0 { slope } else { 1.0 });
}

/// The values, as many as there are of `by`, where that is positive or NaN, `slope` times as much elsewhere.
#[inline(always)]
pub fn leaky_by_sign<S: Simd>(_: S, slope: f32, by: &[f32], values: &mut [f32]) {
    for (value, &by) in values[..by.len()].iter_mut().zip(by) {
        *value *= if by <= 0.0 { slope } else { 1.0 };
    }
}
