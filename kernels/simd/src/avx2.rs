//! Body in AVX2 and FMA.

use std::arch::x86_64::*;

use super::simd::{Simd, single_instructions, transposed_quarters};

/// Eight lanes with fused multiply-add. Only [`Avx2::detect`] makes one.
#[derive(Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// The proof that this processor has AVX2 and FMA, if it does.
    pub fn detect() -> Option<Self> {
        let available = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        available.then_some(Self(()))
    }
}

/// All ones in so many lanes, from the first on.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn first(count: usize) -> __m256i {
    // SAFETY: as the caller promises.
    unsafe {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), lanes)
    }
}

impl Simd for Avx2 {
    type Vector = __m256;
    const NAME: &'static str = "AVX2";
    const WIDTH: usize = 8;

    #[inline(always)]
    unsafe fn read_first(self, from: *const f32, count: usize) -> __m256 {
        // SAFETY: `self` proves AVX2 and the caller promises so many readable floats; no others are
        // read.
        unsafe { _mm256_maskload_ps(from, first(count)) }
    }

    #[inline(always)]
    unsafe fn write_first(self, to: *mut f32, count: usize, value: __m256) {
        // SAFETY: `self` proves AVX2 and the caller promises so many writable floats; no others are
        // written.
        unsafe { _mm256_maskstore_ps(to, first(count), value) }
    }

    single_instructions! { __m256: _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps;
        add(a, b): _mm256_add_ps, sub(a, b): _mm256_sub_ps, mul(a, b): _mm256_mul_ps,
        div(a, b): _mm256_div_ps, mul_add(a, b, c): _mm256_fmadd_ps,
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves AVX2. The unordered lanes become all ones, which is a NaN.
        unsafe { _mm256_or_ps(_mm256_max_ps(a, b), _mm256_cmp_ps::<_CMP_UNORD_Q>(a, b)) }
    }

    #[inline(always)]
    fn relu(self, a: __m256) -> __m256 {
        // SAFETY: `self` proves AVX2. The instruction returns its second operand if it is NaN.
        unsafe { _mm256_max_ps(_mm256_setzero_ps(), a) }
    }

    #[inline(always)]
    fn gate(self, a: __m256, value: __m256) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_and_ps(value, _mm256_cmp_ps::<_CMP_NLE_UQ>(a, _mm256_setzero_ps())) }
    }

    #[inline(always)]
    fn part(self, a: __m256, b: __m256, value: __m256) -> (__m256, __m256) {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let same = _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b);
            (_mm256_and_ps(same, value), _mm256_andnot_ps(same, value))
        }
    }

    #[inline(always)]
    fn power_of_two(self, shifted: __m256) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(shifted));
            let one = _mm256_castps_si256(_mm256_set1_ps(1.0));
            _mm256_castsi256_ps(_mm256_add_epi32(exponent, one))
        }
    }

    #[inline(always)]
    unsafe fn flip(
        self,
        (from, step): (*const f32, usize),
        (to, out): (*mut f32, usize),
        _: usize,
    ) {
        // SAFETY: `self` proves AVX2 and the caller promises eight vectors on either side.
        unsafe {
            let row = |i: usize| _mm256_loadu_ps(from.add(i * step));
            // Vectors `i` and `i + 4` side by side in halves: what remains are two 4x4 transposes.
            let left = |i| _mm256_permute2f128_ps::<0x20>(row(i), row(i + 4));
            let right = |i| _mm256_permute2f128_ps::<0x31>(row(i), row(i + 4));
            for (at, rows) in [
                (0, [left(0), left(1), left(2), left(3)]),
                (4, [right(0), right(1), right(2), right(3)]),
            ] {
                let columns = transposed_quarters!(
                    rows,
                    _mm256_unpacklo_ps,
                    _mm256_unpackhi_ps,
                    _mm256_shuffle_ps
                );
                for (j, column) in columns.into_iter().enumerate() {
                    _mm256_storeu_ps(to.add((at + j) * out), column);
                }
            }
        }
    }
}
