//! CPU bodies, plane by plane, in the place of what they change if that is owned.

use std::borrow::Cow;

use crate::channels::cpu::replace;
use crate::cpu::instruction_set::chosen;

/// `x` where it is positive or NaN, `slope * x` elsewhere.
pub fn leaky(x: Cow<'_, [f32]>, plane: usize, slope: f32) -> Vec<f32> {
    let body = chosen();
    replace(x, plane, |_, x| body.leaky(slope, x))
}

/// `values` where `by` is positive or NaN, `slope` times as much elsewhere.
pub fn by_sign(by: &[f32], values: Cow<'_, [f32]>, plane: usize, slope: f32) -> Vec<f32> {
    let body = chosen();
    let by = |p: usize| &by[p * plane..(p + 1) * plane];
    replace(values, plane, |p, values| body.leaky_by_sign(slope, by(p), values))
}
