//! Body in AVX-512.

use std::arch::x86_64::*;

use super::simd::{Simd, single_instructions, transposed_quarters};

/// Sixteen lanes with fused multiply-add. Only [`Avx512::detect`] makes one.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Avx512 {
    /// The proof that this processor has AVX-512F, and what the compiler takes it to include, if it
    /// does.
    pub fn detect() -> Option<Self> {
        let available = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        available.then_some(Self(()))
    }
}

/// So many lanes, from the first on.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    (1u32 << count).wrapping_sub(1) as __mmask16
}

impl Simd for Avx512 {
    type Vector = __m512;
    const NAME: &'static str = "AVX-512";
    const WIDTH: usize = 16;
    const ROWS: usize = 14;

    #[inline(always)]
    unsafe fn read_first(self, from: *const f32, count: usize) -> __m512 {
        // SAFETY: `self` proves AVX-512F and the caller promises so many readable floats; no others
        // are read.
        unsafe { _mm512_maskz_loadu_ps(first(count), from) }
    }

    #[inline(always)]
    unsafe fn write_first(self, to: *mut f32, count: usize, value: __m512) {
        // SAFETY: `self` proves AVX-512F and the caller promises so many writable floats; no others
        // are written.
        unsafe { _mm512_mask_storeu_ps(to, first(count), value) }
    }

    single_instructions! { __m512: _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps;
        add(a, b): _mm512_add_ps, sub(a, b): _mm512_sub_ps, mul(a, b): _mm512_mul_ps,
        div(a, b): _mm512_div_ps, mul_add(a, b, c): _mm512_fmadd_ps,
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512F. The instruction returns its second operand if either is
        // NaN; the mask keeps `a` where that is the NaN.
        unsafe { _mm512_mask_max_ps(a, _mm512_cmp_ps_mask::<_CMP_ORD_Q>(a, a), a, b) }
    }

    #[inline(always)]
    fn relu(self, a: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512F. The instruction returns its second operand if it is NaN.
        unsafe { _mm512_max_ps(_mm512_setzero_ps(), a) }
    }

    #[inline(always)]
    fn gate(self, a: __m512, value: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512F.
        unsafe {
            let open = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(a, _mm512_setzero_ps());
            _mm512_maskz_mov_ps(open, value)
        }
    }

    #[inline(always)]
    fn part(self, a: __m512, b: __m512, value: __m512) -> (__m512, __m512) {
        // SAFETY: `self` proves AVX-512F.
        unsafe {
            let same = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b);
            (_mm512_maskz_mov_ps(same, value), _mm512_maskz_mov_ps(!same, value))
        }
    }

    #[inline(always)]
    fn power_of_two(self, shifted: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512F.
        unsafe {
            let exponent = _mm512_slli_epi32::<23>(_mm512_castps_si512(shifted));
            let one = _mm512_castps_si512(_mm512_set1_ps(1.0));
            _mm512_castsi512_ps(_mm512_add_epi32(exponent, one))
        }
    }

    #[inline(always)]
    unsafe fn flip(
        self,
        (from, step): (*const f32, usize),
        (to, out): (*mut f32, usize),
        columns: usize,
    ) {
        // SAFETY: `self` proves AVX-512F and the caller promises sixteen vectors on either side.
        unsafe {
            for at in (0..columns.min(16)).step_by(4) {
                // Four floats of every fourth vector in the quarters: what remains are 4x4 transposes.
                let part = |i: usize| _mm_loadu_ps(from.add(i * step + at));
                let rows = |i: usize| {
                    let rows = _mm512_castps128_ps512(part(i));
                    let rows = _mm512_insertf32x4::<1>(rows, part(i + 4));
                    let rows = _mm512_insertf32x4::<2>(rows, part(i + 8));
                    _mm512_insertf32x4::<3>(rows, part(i + 12))
                };
                let rows = [rows(0), rows(1), rows(2), rows(3)];
                let columns = transposed_quarters!(
                    rows,
                    _mm512_unpacklo_ps,
                    _mm512_unpackhi_ps,
                    _mm512_shuffle_ps
                );
                for (j, column) in columns.into_iter().enumerate() {
                    _mm512_storeu_ps(to.add((at + j) * out), column);
                }
            }
        }
    }
}
