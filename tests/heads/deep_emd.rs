use burn::backend::Flex;
use burn::tensor::Tensor;
use fewshot::learners::heads::{DeepEmd, Head};

use super::numbers::*;

const CHANNELS: usize = 5;
const LABELS: [usize; 4] = [0, 1, 1, 0];

/// A map `[c, n]` as places of `c` values.
fn places(map: &[f64]) -> Vec<Vec<f64>> {
    let count = map.len() / CHANNELS;
    (0..count).map(|at| map[at..].iter().step_by(count).copied().collect()).collect()
}

fn mean(rows: &[Vec<f64>]) -> Vec<f64> {
    let sum = |at: usize| rows.iter().map(|row| row[at]).sum::<f64>();
    (0..rows[0].len()).map(|at| sum(at) / rows.len() as f64).collect()
}

/// Gains `[n, n]`, and what rows and columns weigh.
fn programme(query: &[f64], class: &[f64]) -> (Vec<Vec<f64>>, [Vec<f64>; 2]) {
    let (query, class) = (places(query), places(class));
    let weights = |of: &[Vec<f64>], other: &[Vec<f64>]| -> Vec<f64> {
        let mean = mean(other);
        let weights: Vec<_> = of.iter().map(|place| dot(place, &mean).max(0.0) + 1e-3).collect();
        let factor = of.len() as f64 / weights.iter().sum::<f64>();
        weights.into_iter().map(|weight| weight * factor).collect()
    };
    let centred = |place: &Vec<f64>| -> Vec<f64> {
        let mean = place.iter().sum::<f64>() / CHANNELS as f64;
        place.iter().map(|value| value - mean).collect()
    };
    let gain = |from: &Vec<f64>, to: &Vec<f64>| cosine(&centred(from), &centred(to));
    let gains = query.iter().map(|from| class.iter().map(|to| gain(from, to)).collect());
    (gains.collect(), [weights(&query, &class), weights(&class, &query)])
}

fn wanted(
    support: &[f64],
    queries: &[f64],
    places: usize,
    best: impl Fn(&[Vec<f64>], [&[f64]; 2]) -> f64,
) -> Vec<f64> {
    let classes = [0, 1].map(|class| mean_of(support, CHANNELS * places, &LABELS, class));
    let logit = |query: &[f64], class: &[f64]| {
        let (gains, [supply, demand]) = programme(query, class);
        12.5 / places as f64 * best(&gains, [&supply, &demand])
    };
    let queries = queries.chunks(CHANNELS * places);
    queries.flat_map(|query| classes.each_ref().map(|class| logit(query, class))).collect()
}

/// With two places all flows lie on a line, and the best is at an end of it.
fn best_of_two(gains: &[Vec<f64>], [supply, demand]: [&[f64]; 2]) -> f64 {
    let at = |first: f64| {
        let rest = [supply[0] - first, demand[0] - first];
        first * gains[0][0]
            + rest[0] * gains[0][1]
            + rest[1] * gains[1][0]
            + (supply[1] - rest[1]) * gains[1][1]
    };
    at((supply[0] - demand[1]).max(0.0)).max(at(supply[0].min(demand[0])))
}

/// By Sinkhorn's iterations with a little entropy.
fn nearly_best(gains: &[Vec<f64>], [supply, demand]: [&[f64]; 2]) -> f64 {
    const ENTROPY: f64 = 1e-3;
    let size = supply.len();
    let soft = |values: Vec<f64>| {
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        most + values.iter().map(|x| (x - most).exp()).sum::<f64>().ln()
    };
    let (mut rows, mut columns) = (vec![0.0; size], vec![0.0; size]);
    for _ in 0..20_000 {
        for i in 0..size {
            let logs = (0..size).map(|j| gains[i][j] / ENTROPY + columns[j]);
            rows[i] = supply[i].ln() - soft(logs.collect());
        }
        for j in 0..size {
            let logs = (0..size).map(|i| gains[i][j] / ENTROPY + rows[i]);
            columns[j] = demand[j].ln() - soft(logs.collect());
        }
    }
    let pairs = (0..size).flat_map(|i| (0..size).map(move |j| (i, j)));
    let flow = |(i, j): (usize, usize)| (gains[i][j] / ENTROPY + rows[i] + columns[j]).exp();
    pairs.map(|pair| gains[pair.0][pair.1] * flow(pair)).sum()
}

#[test]
fn logits_are_those_of_the_best_flow() {
    for (map, allowed, best) in [
        ([CHANNELS, 1, 2], 1e-4, best_of_two as fn(&[Vec<f64>], [&[f64]; 2]) -> f64),
        ([CHANNELS, 2, 2], 3e-3, nearly_best),
        ([CHANNELS, 3, 1], 3e-3, nearly_best),
    ] {
        let (places, features) = (map[1] * map[2], map.iter().product::<usize>());
        let (rows, queries) = (drawn(4 * features, 71), drawn(3 * features, 72));
        let found = logits(&DeepEmd::new(map), support::<Flex>(&rows, &LABELS, 2), &queries);
        assert_near(&found, &wanted(&rows, &queries, places, best), allowed);
    }
}

#[test]
fn a_single_place_leaves_cosines() {
    let (rows, queries) = (drawn(4 * CHANNELS, 73), drawn(3 * CHANNELS, 74));
    let mut head = DeepEmd::new([CHANNELS, 1, 1]);
    head.temperature = 2.0;
    let found = logits(&head, support::<Flex>(&rows, &LABELS, 2), &queries);
    let only = |gains: &[Vec<f64>], _: [&[f64]; 2]| gains[0][0];
    let wanted: Vec<_> =
        wanted(&rows, &queries, 1, only).iter().map(|logit| logit * 2.0 / 12.5).collect();
    assert_near(&found, &wanted, 1e-5);
}

#[test]
fn gradients_flow_through_cosines() {
    // With one place the flow is 1, whatever the embeddings, and logits have all of its gradient.
    let head = DeepEmd::new([CHANNELS, 1, 1]);
    let (rows, queries) = (drawn(4 * CHANNELS, 78), drawn(3 * CHANNELS, 79));
    let queries = || tensor::<Trained, 3>(&queries, [1, 3, CHANNELS]);
    let value = |rows: Tensor<Trained, 3>| {
        let of = support::<Trained>(&drawn(4 * CHANNELS, 78), &LABELS, 2).with_embeddings(rows);
        weighted(head.fit(of).logits(queries()), 80)
    };
    let x = tensor::<Trained, 3>(&rows, [1, 4, CHANNELS]).require_grad();
    let gradient = values(x.grad(&value(x.clone()).backward()).unwrap());
    let way = drawn(4 * CHANNELS, 81);
    let at = |step: f64| {
        let moved: Vec<_> = rows.iter().zip(&way).map(|(x, by)| x + step * by).collect();
        values(value(tensor(&moved, [1, 4, CHANNELS])))[0]
    };
    let (along, difference) = (dot(&gradient, &way), (at(1e-2) - at(-1e-2)) / 2e-2);
    assert!((along - difference).abs() < 1e-2 * along.abs(), "{along} is not {difference}");
}

#[test]
fn what_is_no_number_has_logits_that_are_none() {
    let rows = drawn(4 * CHANNELS * 2, 75);
    let mut queries = drawn(2 * CHANNELS * 2, 76);
    queries[0] = f64::NAN;
    let head = DeepEmd::new([CHANNELS, 1, 2]);
    let found = logits(&head, support::<Flex>(&rows, &LABELS, 2), &queries);
    assert!(found[..2].iter().all(|logit| logit.is_nan()), "{found:?}");
    assert!(found[2..].iter().all(|logit| logit.is_finite()), "{found:?}");
}
