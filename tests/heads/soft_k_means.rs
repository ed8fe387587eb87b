use burn::backend::Flex;
use burn::tensor::Tensor;
use fewshot::learners::heads::{Head, SoftKMeans};

use super::numbers::*;

const LABELS: [usize; 4] = [0, 1, 1, 0];
const FEATURES: usize = 3;

fn far(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

fn refined(rows: &[f64], queries: &[f64], steps: usize) -> Vec<f64> {
    let mean = |own: &dyn Fn(usize) -> f64, shares: &[f64]| -> Vec<f64> {
        let all = rows.chunks(FEATURES).zip((0..LABELS.len()).map(own));
        let all: Vec<_> = all.chain(queries.chunks(FEATURES).zip(shares.iter().copied())).collect();
        let total: f64 = all.iter().map(|(_, share)| share).sum();
        let sum = |at: usize| all.iter().map(|(row, share)| row[at] * share).sum::<f64>();
        (0..FEATURES).map(|at| sum(at) / total).collect()
    };
    let mut shares = [vec![0.0; queries.len() / FEATURES], vec![0.0; queries.len() / FEATURES]];
    for step in 0..=steps {
        let prototypes =
            [0, 1].map(|class| mean(&|at| f64::from(LABELS[at] == class), &shares[class]));
        let logits: Vec<[f64; 2]> = queries
            .chunks(FEATURES)
            .map(|query| [0, 1].map(|class| -far(query, &prototypes[class])))
            .collect();
        if step == steps {
            return logits.concat();
        }
        shares = [0, 1].map(|class| {
            let share = |l: &[f64; 2]| l[class].exp() / (l[0].exp() + l[1].exp());
            logits.iter().map(share).collect()
        });
    }
    unreachable!("the last step returns")
}

#[test]
fn class_means_take_queries_in_as_far_as_they_belong() {
    let (rows, queries) = (drawn(12, 1), drawn(15, 2));
    for steps in [0, 1, 3] {
        let head = SoftKMeans { steps };
        let found =
            head.logits(support::<Flex>(&rows, &LABELS, 2), tensor(&queries, [1, 5, FEATURES]));
        assert_near(&values(found), &refined(&rows, &queries, steps), 1e-5);
    }
    let one = SoftKMeans::new();
    let found = one.logits(support::<Flex>(&rows, &LABELS, 2), tensor(&queries, [1, 5, FEATURES]));
    assert_near(&values(found), &refined(&rows, &queries, 1), 1e-5);
}

#[test]
fn gradients_flow_through_the_refinement() {
    let (rows, queries, weights) = (drawn(12, 1), drawn(15, 2), drawn(10, 3));
    let value = |rows: &[f64], queries: &[f64]| dot(&refined(rows, queries, 2), &weights);
    let mut support = support::<Trained>(&rows, &LABELS, 2);
    support.embeddings = support.embeddings.require_grad();
    let asked = tensor::<Trained, 3>(&queries, [1, 5, FEATURES]).require_grad();
    let logits = SoftKMeans { steps: 2 }.logits(support.clone(), asked.clone());
    let gradients = (logits * tensor::<Trained, 3>(&weights, [1, 5, 2])).sum().backward();
    let difference = |value: &dyn Fn(&[f64]) -> f64, at: &[f64]| -> Vec<f64> {
        let moved = |i: usize, by: f64| {
            let mut at = at.to_vec();
            at[i] += by;
            value(&at)
        };
        (0..at.len()).map(|i| (moved(i, 1e-5) - moved(i, -1e-5)) / 2e-5).collect()
    };
    let of = |x: &Tensor<Trained, 3>| values(x.grad(&gradients).expect("it is tracked"));
    assert_near(&of(&support.embeddings), &difference(&|rows| value(rows, &queries), &rows), 1e-4);
    assert_near(&of(&asked), &difference(&|queries| value(&rows, queries), &queries), 1e-4);
}
