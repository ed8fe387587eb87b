//! `f32` to bf16, in the orders that products of tiles take: rounded to the nearest, the even one of
//! two, and NaN to NaN.

use std::arch::x86_64::*;

use super::amx::Amx;
use super::amx_convolution::BLOCK;
use super::avx512::Avx512;
use super::simd::Simd;

impl Amx {
    /// In the same order; whole lines of 32.
    pub fn narrow(self, from: &[f32], to: &mut [u16]) {
        // SAFETY: `self` proves the features.
        unsafe { narrow(from, to) }
    }

    /// Rounds but stays `f32`; whole lines of 16.
    pub fn round_to(self, from: &[f32], to: &mut [f32]) {
        // SAFETY: `self` proves the features.
        unsafe { round_to(from, to) }
    }

    /// `[32 rows, 32]` to `[2, 16, 16, 2]`: halves of the columns, pairs of rows, columns of the half, and
    /// rows of the pair. Rows that `from` lacks are zeros.
    pub fn pairs(self, from: &[f32], to: &mut [u16]) {
        let to: &mut [u16; BLOCK * BLOCK] = to.try_into().expect("a block");
        with_whole(from, |rows| {
            // SAFETY: `self` proves the features.
            unsafe { pairs(rows, to) }
        });
    }

    /// `[32 rows, 32]` to its transpose, with rows `row` apart. Rows that `from` lacks are zeros.
    pub fn transposed(self, from: &[f32], to: &mut [u16], row: usize) {
        assert!(row.is_multiple_of(2) && to.len() >= (BLOCK - 1) * row + BLOCK, "room for rows");
        with_whole(from, |rows| {
            // SAFETY: `self` proves the features, and there is room as checked above.
            unsafe { transposed(self.avx512(), rows, (to.as_mut_ptr(), row)) }
        });
    }
}

/// A block, with zeros for the rows that are not there.
fn with_whole(rows: &[f32], work: impl FnOnce(&[f32; BLOCK * BLOCK])) {
    if let Ok(whole) = rows.try_into() {
        return work(whole);
    }
    let mut whole = [0.0; BLOCK * BLOCK];
    whole[..rows.len()].copy_from_slice(rows);
    work(&whole);
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn narrow(from: &[f32], to: &mut [u16]) {
    for (from, to) in from.chunks_exact(BLOCK).zip(to.chunks_exact_mut(BLOCK)) {
        // SAFETY: a line has 32 numbers on either side.
        unsafe {
            let halves = [_mm512_loadu_ps(from.as_ptr()), _mm512_loadu_ps(from[16..].as_ptr())];
            let line: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(halves[1], halves[0]));
            _mm512_storeu_si512(to.as_mut_ptr().cast(), line);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn round_to(from: &[f32], to: &mut [f32]) {
    for (from, to) in from.chunks_exact(16).zip(to.chunks_exact_mut(16)) {
        // SAFETY: a line has 16 numbers on either side.
        unsafe {
            let rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(from.as_ptr()));
            _mm512_storeu_ps(to.as_mut_ptr(), _mm512_cvtpbh_ps(rounded));
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pairs(from: &[f32; BLOCK * BLOCK], to: &mut [u16; BLOCK * BLOCK]) {
    let mut order = [0u16; BLOCK];
    order.iter_mut().enumerate().for_each(|(i, place)| *place = (i % 2 * 16 + i / 2) as u16);
    // SAFETY: the array has 32 numbers of 16 bits.
    let order = unsafe { _mm512_loadu_si512(order.as_ptr().cast()) };
    for (half, to) in to.chunks_exact_mut(BLOCK * BLOCK / 2).enumerate() {
        for (rows, to) in from.chunks_exact(2 * BLOCK).zip(to.chunks_exact_mut(BLOCK)) {
            let [even, odd] = [&rows[half * 16..], &rows[BLOCK + half * 16..]];
            // SAFETY: a row has 16 numbers in a half, and the line has 32.
            unsafe {
                let both = [_mm512_loadu_ps(even.as_ptr()), _mm512_loadu_ps(odd.as_ptr())];
                let both: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(both[1], both[0]));
                let paired = _mm512_permutexvar_epi16(order, both);
                _mm512_storeu_si512(to.as_mut_ptr().cast(), paired);
            }
        }
    }
}

/// Writes the transpose: that of pairs of rows, for either half of the columns.
///
/// # Safety
/// There is room for 32 rows of 32, `row` apart, which is even.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn transposed(simd: Avx512, from: &[f32; BLOCK * BLOCK], (to, row): (*mut u16, usize)) {
    let mut paired = [0; BLOCK * BLOCK];
    pairs(from, &mut paired);
    for (half, paired) in paired.chunks_exact(BLOCK * BLOCK / 2).enumerate() {
        // SAFETY: 16 vectors of 16 pairs on either side, for which there is room. Pairs are moved and
        // not computed with.
        unsafe {
            let to = to.add(half * BLOCK / 2 * row);
            simd.flip((paired.as_ptr().cast(), BLOCK / 2), (to.cast(), row / 2), BLOCK / 2);
        }
    }
}
