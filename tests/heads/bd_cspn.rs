use burn::backend::Flex;
use fewshot::learners::heads::{BdCspn, Head, LengthNormalisation, ScoredQueries};

use super::numbers::*;

const LABELS: [usize; 4] = [0, 1, 1, 0];

fn unit(row: &[f64]) -> Vec<f64> {
    row.iter().map(|x| x / dot(row, row).sqrt()).collect()
}

fn mean(rows: &[Vec<f64>]) -> Vec<f64> {
    let sum = |at: usize| rows.iter().map(|row| row[at]).sum::<f64>();
    (0..rows[0].len()).map(|at| sum(at) / rows.len() as f64).collect()
}

fn wanted(rows: &[f64], queries: &[f64], s: f64, units: bool, shifted: bool) -> Vec<f64> {
    let read = |x: &[f64]| -> Vec<Vec<f64>> {
        x.chunks(3).map(|row| if units { unit(row) } else { row.to_vec() }).collect()
    };
    let (rows, queries) = (read(rows), read(queries));
    let (to, from) = (mean(&rows), mean(&queries));
    let moved: Vec<Vec<f64>> = queries
        .iter()
        .map(|query| (0..3).map(|at| query[at] + to[at] - from[at]).collect())
        .collect();
    let of = |class| -> Vec<Vec<f64>> {
        rows.iter().zip(LABELS).filter(|(_, l)| *l == class).map(|(row, _)| row.clone()).collect()
    };
    let cosine = |a: &[f64], b: &[f64]| dot(&unit(a), &unit(b));
    let basic = [0, 1].map(|class| mean(&of(class)));
    let rectified = [0, 1].map(|class| {
        let near = |q: &&Vec<f64>| cosine(q, &basic[class]) >= cosine(q, &basic[1 - class]);
        let members: Vec<_> =
            of(class).into_iter().chain(moved.iter().filter(near).cloned()).collect();
        let weights: Vec<_> =
            members.iter().map(|x| (s * cosine(x, &basic[class])).exp()).collect();
        let sum = |at: usize| members.iter().zip(&weights).map(|(x, w)| x[at] * w).sum::<f64>();
        let total: f64 = weights.iter().sum();
        [0, 1, 2].map(|at| sum(at) / total)
    });
    let scored = if shifted { &moved } else { &queries };
    scored.iter().flat_map(|x| [0, 1].map(|class| s * cosine(x, &rectified[class]))).collect()
}

#[test]
fn prototypes_are_weighted_means_of_support_and_pseudo_labelled_queries() {
    let (rows, queries) = (drawn(12, 4), drawn(21, 5));
    for (scale, lengths, scored) in [
        (10.0, LengthNormalisation::Unit, ScoredQueries::Shifted),
        (1.0, LengthNormalisation::Given, ScoredQueries::Unshifted),
        (3.0, LengthNormalisation::Given, ScoredQueries::Shifted),
        (1.0, LengthNormalisation::Unit, ScoredQueries::Unshifted),
    ] {
        let head = BdCspn { scale, lengths, scored };
        let found = head.logits(support::<Flex>(&rows, &LABELS, 2), tensor(&queries, [1, 7, 3]));
        let (units, shifted) =
            (lengths == LengthNormalisation::Unit, scored == ScoredQueries::Shifted);
        assert_near(&values(found), &wanted(&rows, &queries, scale, units, shifted), 1e-5);
    }
}

#[test]
fn the_paper_has_unit_lengths_and_scores_shifted_queries() {
    let (rows, queries) = (drawn(12, 6), drawn(21, 7));
    let found =
        BdCspn::new().logits(support::<Flex>(&rows, &LABELS, 2), tensor(&queries, [1, 7, 3]));
    assert_near(&values(found), &wanted(&rows, &queries, 10.0, true, true), 1e-5);
}

#[test]
fn the_largest_scale_leaves_weights_of_opposite_embeddings() {
    // Each class is of two opposite embeddings, so that no cosine is near 1.
    let rows = [1.0, 0.0, 0.1, 0.0, 1.0, 0.1, 0.0, -1.0, 0.1, -1.0, 0.0, 0.1];
    let head = BdCspn { scale: 40.0, ..BdCspn::new() };
    let found = head.logits(support::<Flex>(&rows, &LABELS, 2), tensor(&rows, [1, 4, 3]));
    assert!(values(found).iter().all(|logit| logit.is_finite()));
}

#[test]
fn supports_that_nearly_cancel_have_finite_logits() {
    let rows = [1.0, 0.3, -0.7, -1.0, -0.3, 0.7001, 0.0, 1.0, 0.2, 0.0001, -1.0, -0.2];
    let queries = drawn(21, 8);
    for scored in [ScoredQueries::Shifted, ScoredQueries::Unshifted] {
        let head = BdCspn { scale: 40.0, scored, ..BdCspn::new() };
        let found =
            head.logits(support::<Flex>(&rows, &[0, 0, 1, 1], 2), tensor(&queries, [1, 7, 3]));
        assert!(values(found).iter().all(|logit| logit.abs() <= 40.0));
    }
}
