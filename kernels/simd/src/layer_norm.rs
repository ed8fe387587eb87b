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

/// Replaces the gradient `dy` of what [`layer_norm`] makes of the row `x` by that of the row, and adds to the sums of the gradients
/// of gain and shift.
///
/// With `u` the normalised row, `r` the inverse deviation and `g = dy * gamma`: `dx = r (g - mean(g) - u mean(g u))`.
#[inline(always)]
pub fn layer_norm_vjp<S: Simd>(
    simd: S,
    gamma: &[f32],
    epsilon: f32,
    x: &[f32],
    dy: &mut [f32],
    [of_gamma, of_beta]: [&mut [f32]; 2],
) {
    let length = x.len();
    let lengths = [gamma.len(), dy.len(), of_gamma.len(), of_beta.len()];
    assert_eq!(lengths, [length; 4], "a value for each of a row");
    let mean = deviations::<S, false>(simd, x, 0.0) / length as f32;
    let squares = deviations::<S, true>(simd, x, mean);
    let deviation = (squares / length as f32 + epsilon).sqrt();
    let [centre, scale] = [simd.splat(mean), simd.splat(1.0 / deviation)];
    let [mut sum, mut product] = [simd.splat(0.0); 2];
    for at in (0..length).step_by(S::WIDTH) {
        let count = (length - at).min(S::WIDTH);
        // SAFETY: so many floats are left of the five rows, which are equally long. Behind the end `g` is zero.
        unsafe {
            let x = simd.read_up_to(x.as_ptr().add(at), count);
            let u = simd.mul(simd.sub(x, centre), scale);
            let dy = simd.read_up_to(dy.as_ptr().add(at), count);
            let g = simd.mul(dy, simd.read_up_to(gamma.as_ptr().add(at), count));
            sum = simd.add(sum, g);
            product = simd.mul_add(g, u, product);
            let [of_gamma, of_beta] = [of_gamma.as_mut_ptr().add(at), of_beta.as_mut_ptr().add(at)];
            let gain = simd.mul_add(dy, u, simd.read_up_to(of_gamma, count));
            simd.write_up_to(of_gamma, count, gain);
            simd.write_up_to(of_beta, count, simd.add(simd.read_up_to(of_beta, count), dy));
        }
    }
    let [mean, slope] = [sum, product].map(|of| simd.splat(simd.sum(of) / length as f32));
    for at in (0..length).step_by(S::WIDTH) {
        let count = (length - at).min(S::WIDTH);
        // SAFETY: as above.
        unsafe {
            let place = dy.as_mut_ptr().add(at);
            let x = simd.read_up_to(x.as_ptr().add(at), count);
            let u = simd.mul(simd.sub(x, centre), scale);
            let gain = simd.read_up_to(gamma.as_ptr().add(at), count);
            let g = simd.mul(simd.read_up_to(place, count), gain);
            let rest = simd.sub(simd.sub(g, mean), simd.mul(u, slope));
            simd.write_up_to(place, count, simd.mul(rest, scale));
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

    /// Central differences of `sum(dy * layer_norm(x))` in double precision.
    #[test]
    fn gradients_are_those_of_differences() {
        const EPSILON: f64 = 0.5;
        let value = |x: &[f64], gamma: &[f64], dy: &[f64]| -> f64 {
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
            let scale = (variance + EPSILON).sqrt().recip();
            let each = x.iter().zip(gamma).zip(dy);
            each.map(|((x, gamma), dy)| (x - mean) * scale * gamma * dy).sum()
        };
        let differences = |at: &[f64], of: &dyn Fn(&[f64]) -> f64| -> Vec<f64> {
            let moved = |index: usize, by: f64| {
                let mut at = at.to_vec();
                at[index] += by;
                of(&at)
            };
            (0..at.len()).map(|index| (moved(index, 1e-4) - moved(index, -1e-4)) / 2e-4).collect()
        };
        for body in bodies() {
            for length in [1, 2, 15, 16, 33] {
                let [gamma, x, dy] = [1, 2, 3].map(|seed| integers(length, seed));
                let mut gradient = dy.clone();
                let (mut of_gamma, mut of_beta) = (vec![1.0; length], vec![2.0; length]);
                let sums = [&mut of_gamma[..], &mut of_beta[..]];
                body.layer_norm_vjp(&gamma, EPSILON as f32, &x, &mut gradient, sums);
                let wide = |of: &[f32]| of.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
                let [gamma, x, dy] = [&gamma, &x, &dy].map(|of| wide(of));
                let by_x = differences(&x, &|x| value(x, &gamma, &dy));
                let by_gamma = differences(&gamma, &|gamma| value(&x, gamma, &dy));
                let pairs =
                    [(&gradient, &by_x, 0.0), (&of_gamma, &by_gamma, 1.0), (&of_beta, &dy, 2.0)];
                for (results, expected, begin) in pairs {
                    for (result, expected) in results.iter().zip(expected) {
                        let off = (f64::from(*result) - begin - expected).abs();
                        assert!(off < 1e-4, "{} {length}: off by {off}", body.name());
                    }
                }
            }
        }
    }
}
