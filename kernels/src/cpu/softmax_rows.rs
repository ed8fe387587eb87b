//! The softmax of rows.

use super::exponential::exp;
use super::simd::{Simd, WIDEST};

/// Replaces every row of so many scores by the softmax of these times `scale`, which is positive.
#[inline(always)]
pub fn softmax<S: Simd>(simd: S, scale: f32, columns: usize, scores: &mut [f32]) {
    let factor = simd.splat(scale);
    for row in scores.chunks_exact_mut(columns) {
        let shift = simd.splat(-scale * largest(simd, row));
        let mut sums = simd.splat(0.0);
        let mut total = 0.0;
        for at in (0..columns).step_by(S::WIDTH) {
            let count = (columns - at).min(S::WIDTH);
            // SAFETY: so many floats are left of the row.
            unsafe {
                let place = row.as_mut_ptr().add(at);
                let value = exp(simd, simd.mul_add(simd.read_up_to(place, count), factor, shift));
                simd.write_up_to(place, count, value);
                if count == S::WIDTH {
                    sums = simd.add(sums, value);
                } else {
                    total = row[at..].iter().sum();
                }
            }
        }
        let mut lanes = [0.0; WIDEST];
        simd.store(&mut lanes, sums);
        total += lanes[..S::WIDTH].iter().sum::<f32>();
        let share = 1.0 / total;
        row.iter_mut().for_each(|value| *value *= share);
    }
}

/// The largest score; NaN where there is one.
#[inline(always)]
fn largest<S: Simd>(simd: S, row: &[f32]) -> f32 {
    let mut most = simd.splat(f32::NEG_INFINITY);
    let vectors = row.chunks_exact(S::WIDTH);
    let rest = vectors.remainder();
    for vector in vectors {
        most = simd.max(most, simd.load(vector));
    }
    let mut lanes = [0.0; WIDEST];
    simd.store(&mut lanes, most);
    let all = lanes[..S::WIDTH].iter().chain(rest).copied();
    all.fold(f32::NEG_INFINITY, |a, b| if b > a || b.is_nan() { b } else { a })
}

#[cfg(test)]
mod tests {
    use crate::cpu::instruction_set::bodies;
    use crate::cpu::integers;

    #[test]
    fn rows_of_any_length_become_shares() {
        for body in bodies() {
            for columns in [1, 3, 16, 17, 257] {
                let scores = integers(3 * columns, 1);
                let mut found = scores.clone();
                body.softmax(0.5, columns, &mut found);
                for (scores, found) in scores.chunks(columns).zip(found.chunks(columns)) {
                    let total: f64 = scores.iter().map(|x| (f64::from(*x) * 0.5).exp()).sum();
                    for (score, found) in scores.iter().zip(found) {
                        let wanted = (f64::from(*score) * 0.5).exp() / total;
                        let off = (f64::from(*found) - wanted).abs();
                        assert!(off < 1e-6, "{} {columns}: {found}, not {wanted}", body.name());
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_is_seen_and_large_scores_are_taken() {
        for body in bodies() {
            let mut scores = [1.0; 40];
            scores[17] = f32::NAN;
            scores[20..].fill(1e30);
            body.softmax(2.0, 20, &mut scores);
            assert!(scores[..20].iter().all(|x| x.is_nan()), "{}", body.name());
            let even = scores[20..].iter().all(|x| (x - 0.05).abs() < 1e-6);
            assert!(even, "{}: {:?}", body.name(), &scores[20..]);
        }
    }
}
