//! Probabilities that mean what they say, from examples that were left out.

use serde::{Deserialize, Serialize};

/// Map from logits to probabilities, and from cosines to the probability of a known class.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Divisor of logits before the softmax.
    pub temperature: f64,
    /// Slope and offset of the logit that a picture is of a known class at all, by the cosine between its embedding and the
    /// nearest class mean; `None` where no class has two examples.
    pub known: Option<[f64; 2]>,
}

impl Calibration {
    /// A fault of numbers that were read, if there is one.
    pub(super) fn fault(&self) -> Option<String> {
        let Self { temperature, known } = *self;
        if !(temperature.is_finite() && temperature > 0.0) {
            return Some(format!("its temperature is {temperature}, not a number above 0"));
        }
        let known = known.filter(|known| !known.iter().all(|value| value.is_finite()));
        known.map(|known| format!("its calibration has {known:?}, which are not finite"))
    }
}

impl Default for Calibration {
    fn default() -> Self {
        Self { temperature: 1.0, known: None }
    }
}

/// Temperatures that are tried, from the smallest up by the same factor.
const SMALLEST: f64 = 1e-3;
const FACTOR: f64 = 1.05;
const TEMPERATURES: i32 = 285;

/// The temperature under which held-out examples are likeliest: `logits` `[n, ways]` of examples of classes `labels`.
///
/// If all were right, no temperature would be low enough; so each label is taken to be wrong with probability
/// `1 / (n + 2)`, Laplace's rule.
///
/// # Source
/// Guo et al., "On Calibration of Modern Neural Networks", ICML 2017.
pub(super) fn temperature(logits: &[Vec<f32>], labels: &[usize]) -> f64 {
    let wrong = 1.0 / (labels.len() + 2) as f64;
    let loss = |temperature: f64| -> f64 {
        let each = logits.iter().zip(labels).map(|(logits, &label)| {
            let logits: Vec<_> = logits.iter().map(|&x| f64::from(x) / temperature).collect();
            let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total = most + logits.iter().map(|x| (x - most).exp()).sum::<f64>().ln();
            let others = (logits.len() - 1).max(1) as f64;
            let losses = logits.iter().enumerate().map(|(class, x)| {
                (total - x) * if class == label { 1.0 - wrong } else { wrong / others }
            });
            losses.sum::<f64>()
        });
        each.sum()
    };
    let tried = (0..TEMPERATURES).map(|step| SMALLEST * FACTOR.powi(step));
    let losses = tried.map(|temperature| (loss(temperature), temperature));
    losses.min_by(|one, other| one.0.total_cmp(&other.0)).map_or(1.0, |(_, found)| found)
}

/// Slope and offset of a logistic regression that tells `near` from `far`: the similarities of examples to their own class
/// and to the nearest other one, which stands in for an unknown class.
///
/// # Source
/// Targets short of 0 and 1: Platt, "Probabilistic Outputs for Support Vector Machines", 1999.
pub(super) fn known(near: &[f64], far: &[f64]) -> Option<[f64; 2]> {
    if near.is_empty() || far.is_empty() {
        return None;
    }
    let target = |count: usize| 1.0 / (count + 2) as f64;
    let examples = || {
        let near = near.iter().map(|&x| (x, 1.0 - target(near.len())));
        near.chain(far.iter().map(|&x| (x, target(far.len()))))
    };
    let [mut slope, mut offset] = [0.0, 0.0];
    // Newton's method, damped where similarities are all alike.
    for _ in 0..100 {
        let [mut by_slope, mut by_offset] = [0.0, 0.0];
        let [mut a, mut b, mut c] = [1e-6, 0.0, 1e-6];
        for (x, target) in examples() {
            let p = sigmoid(slope * x + offset);
            let (error, weight) = (p - target, p * (1.0 - p));
            by_slope += error * x;
            by_offset += error;
            a += weight * x * x;
            b += weight * x;
            c += weight;
        }
        let determinant = a * c - b * b;
        let steps = [c * by_slope - b * by_offset, a * by_offset - b * by_slope];
        let [along, up] = steps.map(|step| step / determinant);
        if !along.is_finite() || !up.is_finite() {
            return None;
        }
        let damping = 1.0 / (1.0 + 0.1 * along.abs().max(up.abs()).sqrt());
        slope -= damping * along;
        offset -= damping * up;
    }
    Some([slope, offset])
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sure_mistakes_raise_the_temperature() {
        let logits = |right: f32| vec![right, 0.0];
        let right: Vec<_> = (0..20).map(|_| logits(5.0)).collect();
        let sure = temperature(&right, &[0; 20]);
        let mut labels = [0; 20];
        labels[..8].fill(1);
        let unsure = temperature(&right, &labels);
        assert!(unsure > 2.0 * sure, "{unsure} and {sure}");
        // 12 of 20, a little less by the rule, are right with the probability that says so.
        let p = sigmoid(5.0 / unsure);
        assert!((p - 0.6).abs() < 0.03, "{p}");
    }

    #[test]
    fn numbers_that_make_no_probabilities_are_faults() {
        let of = |temperature, known| Calibration { temperature, known }.fault();
        assert_eq!(of(0.3, None), None);
        assert_eq!(of(0.3, Some([-2.0, 0.0])), None);
        for temperature in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(of(temperature, None).unwrap().contains("its temperature is"));
        }
        for known in [[f64::NAN, 0.0], [0.0, f64::INFINITY]] {
            assert!(of(1.0, Some(known)).unwrap().contains("not finite"));
        }
    }

    #[test]
    fn the_middle_between_near_and_far_is_a_half() {
        let [slope, offset] = known(&[0.8, 0.9, 0.85], &[0.4, 0.5, 0.45]).unwrap();
        assert!(slope > 0.0);
        assert!((sigmoid(slope * 0.65 + offset) - 0.5).abs() < 0.01);
        assert!(sigmoid(slope * 0.9 + offset) > 0.7 && sigmoid(slope * 0.4 + offset) < 0.3);
        let alike = known(&[0.5, 0.5], &[0.5, 0.5]).unwrap();
        assert!((sigmoid(alike[0] * 0.5 + alike[1]) - 0.5).abs() < 0.01);
        assert_eq!(known(&[], &[0.5]), None);
    }
}
