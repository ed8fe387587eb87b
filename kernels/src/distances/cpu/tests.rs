use fewshot_simd::instruction_set::{InstructionSet, bodies};

use super::{Dims, Found, loss, scores, scores_gradients};
use crate::distances::Metric;
use crate::metrics::LossCall;

const METRICS: [Metric; 2] = [Metric::SquaredEuclidean, Metric::Cosine];

/// Tasks, queries, ways, features: around the sides of tiles and blocks.
const SIZES: [[usize; 4]; 7] = [
    [1, 1, 1, 1],
    [2, 3, 5, 7],
    [1, 48, 16, 31],
    [3, 49, 33, 33],
    [1, 97, 15, 64],
    [2, 150, 5, 16],
    [1, 5, 100, 130],
];

/// Numbers between -1 and 1.
fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let draw =
        |i: u32| (i.wrapping_mul(2_654_435_761).rotate_left(13) ^ seed.wrapping_mul(97)) % 2001;
    (1..=len as u32).map(|i| draw(i + seed) as f32 / 1000.0 - 1.0).collect()
}

struct Case {
    dims: Dims,
    queries: Vec<f32>,
    prototypes: Vec<f32>,
    labels: Vec<usize>,
    g: Vec<f32>,
}

impl Case {
    fn new([tasks, queries, ways, features]: [usize; 4]) -> Self {
        Self {
            dims: Dims { tasks, queries, ways, features },
            queries: numbers(tasks * queries * features, 1),
            prototypes: numbers(tasks * ways * features, 2),
            labels: (0..tasks * queries).map(|i| i * 7 % ways).collect(),
            g: numbers(tasks * queries * ways, 3),
        }
    }

    fn operands(&self) -> [&[f32]; 2] {
        [&self.queries, &self.prototypes]
    }

    fn loss(&self, body: &dyn InstructionSet, metric: Metric, gradient: bool) -> Found {
        let call = LossCall { metric, scale: 1.5 };
        loss(body, call, self.operands(), &self.labels, self.dims, gradient)
    }
}

/// Everything in double precision, straight from the definitions.
struct Exact {
    scores: Vec<f64>,
    by_queries: Vec<f64>,
    by_prototypes: Vec<f64>,
}

impl Exact {
    fn new(case: &Case, metric: Metric, g: impl Fn(&[f64], usize) -> Vec<f64>) -> Self {
        let Dims { tasks, queries, ways, features: d } = case.dims;
        let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
        let (all_queries, all_prototypes) = (wide(&case.queries), wide(&case.prototypes));
        let (mut by_queries, mut by_prototypes) =
            (vec![0.0; all_queries.len()], vec![0.0; all_prototypes.len()]);
        let mut all_scores = Vec::new();
        for row in 0..tasks * queries {
            let task = row / queries;
            let q = &all_queries[row * d..(row + 1) * d];
            let of = |way: usize| (task * ways + way) * d..(task * ways + way + 1) * d;
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let score = |way: usize| {
                let p = &all_prototypes[of(way)];
                match metric {
                    Metric::SquaredEuclidean => 2.0 * dot(q, p) - dot(q, q) - dot(p, p),
                    Metric::Cosine => dot(q, p) / (dot(q, q) * dot(p, p)).sqrt(),
                }
            };
            let scores: Vec<f64> = (0..ways).map(score).collect();
            for (way, g) in g(&scores, row).into_iter().enumerate() {
                let p = &all_prototypes[of(way)];
                for i in 0..d {
                    let (of_q, of_p) = match metric {
                        Metric::SquaredEuclidean => (2.0 * (p[i] - q[i]), 2.0 * (q[i] - p[i])),
                        Metric::Cosine => {
                            let (qq, pp, s) = (dot(q, q), dot(p, p), scores[way]);
                            let both = (qq * pp).sqrt();
                            (p[i] / both - s * q[i] / qq, q[i] / both - s * p[i] / pp)
                        }
                    };
                    by_queries[row * d + i] += g * of_q;
                    by_prototypes[of(way).start + i] += g * of_p;
                }
            }
            all_scores.extend(scores);
        }
        Self { scores: all_scores, by_queries, by_prototypes }
    }
}

/// Equal up to 3e-6 times the largest value, or what the terms of its sum are like.
fn assert_close(what: &str, found: &[f32], wanted: &[f64], terms: f64) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let most = wanted.iter().fold(terms, |most: f64, x| most.max(x.abs()));
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let error = (f64::from(*found) - wanted).abs();
        assert!(error <= 3e-6 * most, "{what}[{i}] is {found}, not {wanted}");
    }
}

#[test]
fn scores_and_their_gradients_are_those_of_double_precision() {
    for body in bodies() {
        for (size, metric) in SIZES.iter().flat_map(|size| METRICS.map(|metric| (size, metric))) {
            let what = format!("{} {metric} {size:?}", body.name());
            let case = Case::new(*size);
            let ways = case.dims.ways;
            let g = |_: &[f64], row: usize| {
                case.g[row * ways..(row + 1) * ways].iter().map(|&g| f64::from(g)).collect()
            };
            let exact = Exact::new(&case, metric, g);
            let found = scores(body, metric, case.operands(), case.dims);
            assert_close(&what, &found, &exact.scores, 1.0);
            let [by_queries, by_prototypes] =
                scores_gradients(body, metric, &case.g, case.operands(), case.dims);
            assert_close(&format!("{what} by queries"), &by_queries, &exact.by_queries, 1.0);
            assert_close(
                &format!("{what} by prototypes"),
                &by_prototypes,
                &exact.by_prototypes,
                1.0,
            );
        }
    }
}

#[test]
fn losses_and_their_gradients_are_those_of_double_precision() {
    for body in bodies() {
        for (size, metric) in SIZES.iter().flat_map(|size| METRICS.map(|metric| (size, metric))) {
            let what = format!("{} {metric} {size:?}", body.name());
            let case = Case::new(*size);
            let all = case.labels.len() as f64;
            let likely = |scores: &[f64]| {
                let most = scores.iter().copied().fold(f64::MIN, f64::max);
                let e: Vec<f64> = scores.iter().map(|s| (1.5 * (s - most)).exp()).collect();
                let total: f64 = e.iter().sum();
                e.into_iter().map(|e| e / total).collect::<Vec<f64>>()
            };
            let g = |scores: &[f64], row: usize| {
                let mut g = likely(scores);
                g[case.labels[row]] -= 1.0;
                g.into_iter().map(|g| 1.5 * g / all).collect()
            };
            let exact = Exact::new(&case, metric, g);
            let rows = || exact.scores.chunks(case.dims.ways).zip(&case.labels);
            let losses = rows().map(|(scores, &label)| -likely(scores)[label].ln());
            let right = |(scores, &label): (&[f64], &usize)| {
                let first = scores.iter().position(|s| scores.iter().all(|o| o <= s));
                f32::from(u8::from(first == Some(label)))
            };
            let loss = losses.sum::<f64>() / all;
            let correct: Vec<f32> = rows().map(right).collect();
            let found = case.loss(body, metric, true);
            assert_close(&what, &[found.loss], &[loss], 1.0 / all);
            assert_eq!(found.correct, correct, "{what}");
            let [by_queries, by_prototypes] = found.gradients.expect("gradients were asked for");
            assert_close(&format!("{what} by queries"), &by_queries, &exact.by_queries, 1.0 / all);
            assert_close(
                &format!("{what} by prototypes"),
                &by_prototypes,
                &exact.by_prototypes,
                1.0 / all,
            );
            let alone = case.loss(body, metric, false);
            assert_eq!((alone.loss, &alone.correct), (found.loss, &found.correct), "{what}");
            assert!(alone.gradients.is_none());
        }
    }
}

#[test]
fn equal_scores_are_those_of_the_first_class() {
    let dims = Dims { tasks: 1, queries: 3, ways: 3, features: 2 };
    let operands = [&[1.0; 6][..], &[2.0; 6][..]];
    for body in bodies() {
        let call = LossCall { metric: Metric::SquaredEuclidean, scale: 1.0 };
        let found = loss(body, call, operands, &[0, 1, 2], dims, false);
        assert_eq!(found.correct, [1.0, 0.0, 0.0], "{}", body.name());
        assert!((found.loss - 3.0f32.ln()).abs() < 1e-6);
    }
}

#[test]
fn what_is_not_finite_stays_with_its_query() {
    let (case, d) = (Case::new([2, 60, 5, 16]), 16);
    for (body, bad) in bodies().into_iter().flat_map(|b| [f32::NAN, f32::INFINITY].map(|x| (b, x)))
    {
        let mut queries = case.queries.clone();
        queries[7 * d + 3] = bad;
        let call = LossCall { metric: Metric::SquaredEuclidean, scale: 1.0 };
        let operands = [&queries[..], &case.prototypes];
        let found = loss(body, call, operands, &case.labels, case.dims, true);
        assert!(found.loss.is_nan(), "{} {bad}", body.name());
        let [by_queries, by_prototypes] = found.gradients.unwrap();
        for (row, g) in by_queries.chunks(d).enumerate() {
            assert_eq!(g.iter().all(|g| g.is_finite()), row != 7, "{} query {row}", body.name());
        }
        let (first, second) = by_prototypes.split_at(5 * d);
        assert!(first.iter().all(|g| g.is_nan()) && second.iter().all(|g| g.is_finite()));
    }
}
