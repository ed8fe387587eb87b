use burn::backend::Flex;
use fewshot::learners::heads::SimpleCnaps;

use super::numbers::*;

/// `rows - mean`, times its transpose, over one less than the count.
fn covariance(rows: &[f64], features: usize) -> Vec<f64> {
    let count = rows.len() / features;
    let mean = mean_of(rows, features, &vec![0; count], 0);
    let mut found = vec![0.0; features * features];
    for row in rows.chunks(features) {
        for (at, value) in found.iter_mut().enumerate() {
            let (i, j) = (at / features, at % features);
            *value += (row[i] - mean[i]) * (row[j] - mean[j]);
        }
    }
    found.into_iter().map(|value| value / (count.max(2) - 1) as f64).collect()
}

/// Solution `x` of `matrix x = right` by elimination.
fn solved(mut matrix: Vec<f64>, mut right: Vec<f64>) -> Vec<f64> {
    let size = right.len();
    for k in 0..size {
        for i in (0..size).filter(|&i| i != k) {
            let factor = matrix[i * size + k] / matrix[k * size + k];
            (0..size).for_each(|j| matrix[i * size + j] -= factor * matrix[k * size + j]);
            right[i] -= factor * right[k];
        }
    }
    (0..size).map(|k| right[k] / matrix[k * size + k]).collect()
}

fn wanted(
    rows: &[f64],
    labels: &[usize],
    ways: usize,
    queries: &[f64],
    d: usize,
    r: f64,
) -> Vec<f64> {
    let all = covariance(rows, d);
    let score = |query: &[f64], class: usize| {
        let members: Vec<f64> = rows
            .chunks(d)
            .zip(labels)
            .filter(|(_, of)| **of == class)
            .flat_map(|(row, _)| row.to_vec())
            .collect();
        let count = (members.len() / d) as f64;
        let share = count / (count + 1.0);
        let own = covariance(&members, d);
        let mixed = own.iter().zip(&all).enumerate().map(|(at, (own, all))| {
            share * own + (1.0 - share) * all + if at / d == at % d { r } else { 0.0 }
        });
        let mean = mean_of(rows, d, labels, class);
        let far: Vec<f64> = query.iter().zip(&mean).map(|(q, mean)| q - mean).collect();
        -0.5 * dot(&far, &solved(mixed.collect(), far.clone()))
    };
    let pairs = queries.chunks(d).flat_map(|query| (0..ways).map(move |class| (query, class)));
    pairs.map(|(query, class)| score(query, class)).collect()
}

#[test]
fn distances_are_those_of_inverted_covariances() {
    let cases: [(&[usize], usize, usize); 5] = [
        (&[0, 1, 1, 0, 2, 1, 2], 3, 4),
        (&[0, 1, 1, 0, 2, 1, 2], 3, 40),
        (&[0, 1, 2], 3, 5),
        (&[0, 1, 1, 1], 2, 3),
        (&[0], 1, 2),
    ];
    for (labels, ways, d) in cases {
        let rows: Vec<f64> = drawn(labels.len() * d, 1).iter().map(|x| 3.0 * x).collect();
        let queries = drawn(3 * d, 2);
        for regulariser in [1.0, 0.25] {
            let head = SimpleCnaps { regulariser };
            let found = logits::<Flex>(&head, support(&rows, labels, ways), &queries);
            let wanted = wanted(&rows, labels, ways, &queries, d, regulariser);
            assert_near(&found, &wanted, 2e-5);
        }
    }
}

#[test]
fn embeddings_far_from_zero_lose_no_digits() {
    let labels = [0, 1, 1, 0];
    let (rows, queries) = (drawn(12, 3), drawn(6, 4));
    let far = |x: &[f64]| x.iter().map(|x| x + 256.0).collect::<Vec<_>>();
    let found =
        logits::<Flex>(&SimpleCnaps::new(), support(&far(&rows), &labels, 2), &far(&queries));
    assert_near(&found, &wanted(&rows, &labels, 2, &queries, 3, 1.0), 1e-3);
}
