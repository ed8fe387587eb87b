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

/// `x` where it is positive or NaN, `slope * x` elsewhere, for a slope from 0 to 1; at most `most`, unless that is NaN.
#[inline(always)]
pub fn leaky<S: Simd>(_: S, slope: f32, most: f32, x: &mut [f32]) {
    x.iter_mut().for_each(|x| {
        let sloped = *x * if *x <= 0.0 { slope } else { 1.0 };
        *x = if sloped >= most { most } else { sloped };
    });
}

/// The values, as many as there are of `output`, times the slope where [`leaky`] gives that.
#[inline(always)]
pub fn leaky_gate<S: Simd>(_: S, slope: f32, most: f32, output: &[f32], values: &mut [f32]) {
    for (value, &output) in values[..output.len()].iter_mut().zip(output) {
        let sloped = *value * if output <= 0.0 { slope } else { 1.0 };
        *value = if output >= most { 0.0 } else { sloped };
    }
}
