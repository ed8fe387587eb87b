//! Body in NEON.

use std::arch::aarch64::*;

use super::simd::{Simd, single_instructions};

/// Four lanes with fused multiply-add, and 32 registers. Only [`Neon::detect`] makes one.
#[derive(Clone, Copy)]
pub struct Neon(());

impl Neon {
    /// The proof that this processor has NEON, if it does.
    pub fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }
}

impl Simd for Neon {
    type Vector = float32x4_t;
    const NAME: &'static str = "NEON";
    const WIDTH: usize = 4;
    const ROWS: usize = 14;

    single_instructions! { float32x4_t: vdupq_n_f32, vld1q_f32, vst1q_f32;
        add(a, b): vaddq_f32, sub(a, b): vsubq_f32, mul(a, b): vmulq_f32, div(a, b): vdivq_f32,
        max(a, b): vmaxq_f32, min(a, b): vminq_f32,
    }

    #[inline(always)]
    fn mul_add(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        // SAFETY: `self` proves NEON.
        unsafe { vfmaq_f32(c, a, b) }
    }

    #[inline(always)]
    fn relu(self, a: float32x4_t) -> float32x4_t {
        self.max(a, self.splat(0.0))
    }

    #[inline(always)]
    fn gate(self, a: float32x4_t, value: float32x4_t) -> float32x4_t {
        // SAFETY: `self` proves NEON.
        unsafe { vbslq_f32(vcleq_f32(a, vdupq_n_f32(0.0)), vdupq_n_f32(0.0), value) }
    }

    #[inline(always)]
    fn part(
        self,
        a: float32x4_t,
        b: float32x4_t,
        value: float32x4_t,
    ) -> (float32x4_t, float32x4_t) {
        // SAFETY: `self` proves NEON.
        unsafe {
            let (same, zero) = (vceqq_f32(a, b), vdupq_n_f32(0.0));
            (vbslq_f32(same, value, zero), vbslq_f32(same, zero, value))
        }
    }

    #[inline(always)]
    fn power_of_two(self, shifted: float32x4_t) -> float32x4_t {
        // SAFETY: `self` proves NEON.
        unsafe {
            let exponent = vshlq_n_s32::<23>(vreinterpretq_s32_f32(shifted));
            let one = vreinterpretq_s32_f32(vdupq_n_f32(1.0));
            vreinterpretq_f32_s32(vaddq_s32(exponent, one))
        }
    }

    #[inline(always)]
    unsafe fn flip(
        self,
        (from, step): (*const f32, usize),
        (to, out): (*mut f32, usize),
        _: usize,
    ) {
        // SAFETY: `self` proves NEON and the caller promises four vectors on either side.
        unsafe {
            let row = |i: usize| vld1q_f32(from.add(i * step));
            let rows = [row(0), row(1), row(2), row(3)];
            // 2x2 transposes of lanes, then of pairs of lanes.
            let even = [vtrn1q_f32(rows[0], rows[1]), vtrn1q_f32(rows[2], rows[3])];
            let odd = [vtrn2q_f32(rows[0], rows[1]), vtrn2q_f32(rows[2], rows[3])];
            let [even, odd] =
                [even, odd].map(|pairs| pairs.map(|pair| vreinterpretq_f64_f32(pair)));
            let columns = [
                vtrn1q_f64(even[0], even[1]),
                vtrn1q_f64(odd[0], odd[1]),
                vtrn2q_f64(even[0], even[1]),
                vtrn2q_f64(odd[0], odd[1]),
            ];
            for (j, column) in columns.into_iter().enumerate() {
                vst1q_f32(to.add(j * out), vreinterpretq_f32_f64(column));
            }
        }
    }
}
