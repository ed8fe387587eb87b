//! ReLU and the gate of its gradient.

use super::elementwise::{Update, elementwise};
use super::simd::Simd;

struct Rectify;

impl<S: Simd> Update<S, 0, 1> for Rectify {
    #[inline(always)]
    fn apply(&self, simd: S, []: [S::Vector; 0], [x]: [S::Vector; 1]) -> [S::Vector; 1] {
        [simd.relu(x)]
    }
}

struct Gate;

impl<S: Simd> Update<S, 1, 1> for Gate {
    #[inline(always)]
    fn apply(&self, simd: S, [by]: [S::Vector; 1], [value]: [S::Vector; 1]) -> [S::Vector; 1] {
        [simd.gate(by, value)]
    }
}

/// `max(x, 0)`, or NaN where `x` is NaN.
#[inline(always)]
pub fn rectify<S: Simd>(simd: S, x: &mut [f32]) {
    elementwise(simd, &Rectify, [], [x]);
}

/// Zeros the values, as many as there are of `by`, where that is neither positive nor NaN.
#[inline(always)]
pub fn gate<S: Simd>(simd: S, by: &[f32], values: &mut [f32]) {
    elementwise(simd, &Gate, [by], [&mut values[..by.len()]]);
}
