use burn::backend::Flex;
use burn::tensor::{Int, TensorData};

use super::*;

const WAYS: usize = 3;
const FEATURES: usize = 5;
const SHOTS: usize = 2;
const QUERIES: usize = 4;

fn drawn(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        f64::from((state >> 40) as u32) / f64::from(1 << 23) - 1.0
    };
    (0..count).map(next).collect()
}

fn tensor(values: &[f64], examples: usize) -> Tensor<Flex, 3> {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    let data = TensorData::new(values, [1, examples, FEATURES]);
    Tensor::from_data(data, &Default::default())
}

fn normalized(x: &[f64]) -> Vec<f64> {
    let unit = |row: &[f64]| {
        let length = row.iter().map(|value| value * value).sum::<f64>().sqrt();
        row.iter().map(|value| value / length).collect::<Vec<_>>()
    };
    x.chunks(FEATURES).flat_map(unit).collect()
}

fn probabilities(x: &[f64], w: &[f64], temperature: f64) -> Vec<f64> {
    let of_row = |x: &[f64]| {
        let exp = |w: &[f64]| {
            let square: f64 = x.iter().zip(w).map(|(x, w)| (x - w) * (x - w)).sum();
            (-temperature / 2.0 * square).exp()
        };
        let all: Vec<f64> = w.chunks(FEATURES).map(exp).collect();
        let sum: f64 = all.iter().sum();
        all.into_iter().map(move |value| value / sum).collect::<Vec<_>>()
    };
    x.chunks(FEATURES).flat_map(of_row).collect()
}

/// The paper's loss, of normalised embeddings.
fn loss(tim: &Tim, support: &[f64], queries: &[f64], w: &[f64]) -> f64 {
    let p = probabilities(support, w, tim.temperature);
    let labelled = p.chunks(WAYS).enumerate().map(|(i, p)| -p[i / SHOTS].ln());
    let cross_entropy = labelled.sum::<f64>() / (WAYS * SHOTS) as f64;
    let p = probabilities(queries, w, tim.temperature);
    let entropy = |p: &[f64]| -p.iter().map(|p| p * p.ln()).sum::<f64>();
    let conditional = p.chunks(WAYS).map(entropy).sum::<f64>() / QUERIES as f64;
    let mean = |k: usize| p.chunks(WAYS).map(|p| p[k]).sum::<f64>() / QUERIES as f64;
    let marginal = entropy(&(0..WAYS).map(mean).collect::<Vec<_>>());
    tim.cross_entropy * cross_entropy - tim.marginal_entropy * marginal
        + tim.conditional_entropy * conditional
}

#[test]
fn the_gradient_equals_central_differences() {
    let tim = Tim {
        temperature: 6.0,
        cross_entropy: 0.3,
        marginal_entropy: 0.8,
        conditional_entropy: 0.4,
        ..Tim::new(TimSolver::Gd)
    };
    let support = normalized(&drawn(WAYS * SHOTS * FEATURES, 1));
    let queries = normalized(&drawn(QUERIES * FEATURES, 2));
    let w = drawn(WAYS * FEATURES, 3);
    let all = tensor(&[support.clone(), queries.clone()].concat(), WAYS * SHOTS + QUERIES);
    let start = tensor(&drawn(WAYS * FEATURES, 4), WAYS);
    let scored = Scored::new(tim.similarity, tim.temperature, all, &start);
    let labels = Tensor::<Flex, 2, Int>::from_ints([[0, 0, 1, 1, 2, 2]], &Default::default());
    let one_hot = super::super::one_hot(labels, WAYS);
    let found = scored.gradient(&tensor(&w, WAYS), |logits| tim.slopes(logits, &one_hot));
    let found = found.into_data().to_vec::<f32>().unwrap();
    for (i, found) in found.into_iter().enumerate() {
        let at = |step: f64| {
            let mut w = w.clone();
            w[i] += step;
            loss(&tim, &support, &queries, &w)
        };
        let wanted = (at(1e-5) - at(-1e-5)) / 2e-5;
        assert!((f64::from(found) - wanted).abs() < 2e-6, "{i}: {found}, not {wanted}");
    }
}
