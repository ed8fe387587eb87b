//! Elementwise updates of slices of one length, in one pass.

use super::simd::{Simd, WIDEST};

/// The update of an element of each of `W` slices, given those of `R` others.
pub trait Update<S: Simd, const R: usize, const W: usize> {
    fn apply(&self, simd: S, given: [S::Vector; R], of: [S::Vector; W]) -> [S::Vector; W];
}

/// Updates all elements of slices of one length.
#[inline(always)]
pub fn elementwise<S: Simd, const R: usize, const W: usize>(
    simd: S,
    update: &impl Update<S, R, W>,
    given: [&[f32]; R],
    of: [&mut [f32]; W],
) {
    let len = of[0].len();
    assert!(given.iter().all(|slice| slice.len() == len), "slices side by side");
    assert!(of.iter().all(|slice| slice.len() == len), "slices side by side");
    if len < S::WIDTH {
        return short(simd, update, given, of);
    }
    // What does not fill a vector at the end takes the same instructions, so that no element depends
    // on its place: the last vector begins among elements before, and is read before these change.
    let last = len - S::WIDTH;
    let mut reads = [simd.splat(0.0); R];
    let mut ends = [simd.splat(0.0); W];
    for i in 0..R {
        reads[i] = simd.load(&given[i][last..]);
    }
    for i in 0..W {
        ends[i] = simd.load(&of[i][last..]);
    }
    let ends = update.apply(simd, reads, ends);
    let mut at = 0;
    while at < last {
        let mut values = [simd.splat(0.0); W];
        // SAFETY: every slice has `len` floats, and `at + WIDTH` is less.
        unsafe {
            for i in 0..R {
                reads[i] = simd.read(given[i].as_ptr().add(at));
            }
            for i in 0..W {
                values[i] = simd.read(of[i].as_ptr().add(at));
            }
            let values = update.apply(simd, reads, values);
            for i in 0..W {
                simd.write(of[i].as_mut_ptr().add(at), values[i]);
            }
        }
        at += S::WIDTH;
    }
    for i in 0..W {
        simd.store(&mut of[i][last..], ends[i]);
    }
}

/// The same for less than a vector.
#[inline(always)]
fn short<S: Simd, const R: usize, const W: usize>(
    simd: S,
    update: &impl Update<S, R, W>,
    given: [&[f32]; R],
    of: [&mut [f32]; W],
) {
    let len = of[0].len();
    let mut reads = [simd.splat(0.0); R];
    for i in 0..R {
        let mut lanes = [0.0; WIDEST];
        lanes[..len].copy_from_slice(given[i]);
        reads[i] = simd.load(&lanes);
    }
    let mut values = [simd.splat(0.0); W];
    for i in 0..W {
        let mut lanes = [0.0; WIDEST];
        lanes[..len].copy_from_slice(of[i]);
        values[i] = simd.load(&lanes);
    }
    let values = update.apply(simd, reads, values);
    for i in 0..W {
        let mut lanes = [0.0; WIDEST];
        simd.store(&mut lanes, values[i]);
        of[i].copy_from_slice(&lanes[..len]);
    }
}
