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

struct Leaky(f32);

impl<S: Simd> Update<S, 0, 1> for Leaky {
    #[inline(always)]
    fn apply(&self, simd: S, []: [S::Vector; 0], [x]: [S::Vector; 1]) -> [S::Vector; 1] {
        [simd.max(x, simd.mul(simd.splat(self.0), x))]
    }
}

struct LeakyBySign(f32);

impl<S: Simd> Update<S, 1, 1> for LeakyBySign {
    #[inline(always)]
    fn apply(&self, simd: S, [by]: [S::Vector; 1], [value]: [S::Vector; 1]) -> [S::Vector; 1] {
        let one = simd.splat(1.0);
        let open = simd.gate(by, one);
        let factor = simd.mul_add(simd.splat(self.0), simd.sub(one, open), open);
        [simd.mul(factor, value)]
    }
}

/// `x` where it is positive or NaN, `slope * x` elsewhere, for a slope from 0 to 1.
#[inline(always)]
pub fn leaky<S: Simd>(simd: S, slope: f32, x: &mut [f32]) {
    elementwise(simd, &Leaky(slope), [], [x]);
}

/// The values, as many as there are of `by`, where that is positive or NaN, `slope` times as much elsewhere.
#[inline(always)]
pub fn leaky_by_sign<S: Simd>(simd: S, slope: f32, by: &[f32], values: &mut [f32]) {
    elementwise(simd, &LeakyBySign(slope), [by], [&mut values[..by.len()]]);
}
