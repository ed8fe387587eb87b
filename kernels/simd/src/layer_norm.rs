//! Layer normalisation.

use super::simd::Simd;

/// Normalises a row by its mean and variance, then maps it by gain and shift.
#[inline(always)]
pub fn layer_norm<S: Simd>(simd: S, [gamma, beta]: [&[f32]; 2], epsilon: f32, row: &mut [f32]) {
    let length = row.len();
    assert!(gamma.len() == length && beta.len() == length, "a value for each of a row");
    let mean = deviations::<S, false>(simd, row, 0.0) / length as f32;
    let squares = deviations::<S, true>(simd, row, mean);
    let deviation = (squares / length as f32 + epsilon).sqrt();
    let [centre, scale] = [simd.splat(mean), simd.splat(1.0 / deviation)];
    for at in (0..length).step_by(S::WIDTH) {
        let count = (length - at).min(S::WIDTH);
        // SAFETY: so many floats are left of the three rows, which are equally long.
        unsafe {
            let place = row.as_mut_ptr().add(at);
            let x = simd.mul(simd.sub(simd.read_up_to(place, count), centre), scale);
            let gain = simd.read_up_to(gamma.as_ptr().add(at), count);
            let shift = simd.read_up_to(beta.as_ptr().add(at), count);
            simd.write_up_to(place, count, simd.mul_add(x, gain, shift));
        }
    }
}

/// The sum of the deviations from `centre`, or of their squares.
#[inline(always)]
fn deviations<S: Simd, const SQUARED: bool>(simd: S, row: &[f32], centre: f32) -> f32 {
    let of = simd.splat(centre);
    let mut sums = simd.splat(0.0);
    let vectors = row.chunks_exact(S::WIDTH);
    let rest = vectors.remainder().iter().map(|x| x - centre);
    let rest: f32 = rest.map(|x| if SQUARED { x * x } else { x }).sum();
    for vector in vectors {
        let x = simd.sub(simd.load(vector), of);
        sums = if SQUARED { simd.mul_add(x, x, sums) } else { simd.add(sums, x) };
    }
    simd.sum(sums) + rest
}

#[cfg(test)]
mod tests {
    use crate::instruction_set::bodies;
    use crate::integers;

    #[test]
    fn rows_of_any_length_are_normalised() {
        for body in bodies() {
            for length in [1, 2, 15, 16, 33, 100, 384] {
                let (gamma, beta) = (integers(length, 1), integers(length, 2));
                let mut row = integers(length, 3);
                row.iter_mut().for_each(|x| *x += 500.0);
                let exact: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
                let mean = exact.iter().sum::<f64>() / length as f64;
                let variance = exact.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
                let deviation = (variance / length as f64 + 1e-3).sqrt();
                body.layer_norm([&gamma, &beta], 1e-3, &mut row);
                for (place, found) in row.iter().enumerate() {
                    let normal = (exact[place] - mean) / deviation;
                    let expected = normal * f64::from(gamma[place]) + f64::from(beta[place]);
                    let off = (f64::from(*found) - expected).abs();
                    assert!(off < 1e-3, "{} {length}: {found}, not {expected}", body.name());
                }
            }
        }
    }
}
