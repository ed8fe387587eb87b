use burn::backend::Flex;
use burn::tensor::backend::Backend;
use fewshot::learners::heads::{
    Head, LstmCell, MatchingAttention, MatchingContext, MatchingNet, MatchingNetConfig,
};

use super::gradients::are_differences;
use super::numbers::*;

const D: usize = 3;
const LABELS: [usize; 4] = [0, 1, 1, 0];

fn made<B: Backend>(config: MatchingNetConfig) -> MatchingNet<B> {
    let device = Default::default();
    B::seed(&device, 9);
    config.init(&device)
}

/// Logits of embeddings, with or without the length of queries in the attention.
fn wanted(rows: &[f64], queries: &[f64], attention: MatchingAttention) -> Vec<f64> {
    let of_query = |query: &[f64]| {
        let length = match attention {
            MatchingAttention::Cosine { scale } => scale,
            MatchingAttention::UnscaledQuery => dot(query, query).sqrt(),
        };
        let weights: Vec<f64> =
            rows.chunks(D).map(|row| (length * cosine(query, row)).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mass = |class: usize| {
            weights.iter().zip(LABELS).filter(|(_, of)| *of == class).map(|(w, _)| w).sum::<f64>()
        };
        [0, 1].map(|class| (mass(class) / total + 1e-6).ln())
    };
    queries.chunks(D).flat_map(of_query).collect()
}

#[test]
fn logits_are_logarithms_of_the_attention_that_each_class_gets() {
    let (rows, queries) = (drawn(12, 1), drawn(9, 2));
    let cosine = |scale| MatchingAttention::Cosine { scale };
    for attention in [cosine(1.0), cosine(3.5), MatchingAttention::UnscaledQuery] {
        let head = made::<Flex>(MatchingNetConfig::new(D).with_attention(attention));
        let found = logits(&head, support(&rows, &LABELS, 2), &queries);
        assert_near(&found, &wanted(&rows, &queries, attention), 1e-5);
    }
}

#[test]
fn a_class_without_attention_has_a_finite_logit() {
    let config = MatchingNetConfig::new(1).with_attention(MatchingAttention::UnscaledQuery);
    let head = made::<Flex>(config);
    let found = logits(&head, support(&[1.0, -1.0], &[0, 1], 2), &[1e3]);
    assert_near(&found, &[0.0, 1e-6f64.ln()], 1e-5);
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A step of an LSTM: its next hidden state and cell.
fn step(cell: &LstmCell<Flex>, x: &[f64], h: &[f64], c: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (w, u) = (values(cell.weight_ih.val()), values(cell.weight_hh.val()));
    let bias = values(cell.bias.val());
    let column = |m: &[f64], row: &[f64], j: usize| -> f64 {
        row.iter().enumerate().map(|(i, value)| value * m[i * 4 * D + j]).sum()
    };
    let gate: Vec<f64> =
        (0..4 * D).map(|j| column(&w, x, j) + column(&u, h, j) + bias[j]).collect();
    let cell: Vec<f64> = (0..D)
        .map(|at| sigmoid(gate[D + at]) * c[at] + sigmoid(gate[at]) * gate[2 * D + at].tanh())
        .collect();
    ((0..D).map(|at| sigmoid(gate[3 * D + at]) * cell[at].tanh()).collect(), cell)
}

/// Support and queries in their context.
fn in_context(
    head: &MatchingNet<Flex>,
    rows: &[f64],
    queries: &[f64],
    steps: usize,
) -> (Vec<f64>, Vec<f64>) {
    let context = head.full_context.as_ref().unwrap();
    let count = rows.len() / D;
    let mut support = rows.to_vec();
    let orders = [(0..count).collect::<Vec<_>>(), (0..count).rev().collect()];
    for (cell, order) in [&context.forwards, &context.backwards].into_iter().zip(orders) {
        let (mut h, mut c) = (vec![0.0; D], vec![0.0; D]);
        for at in order {
            (h, c) = step(cell, &rows[at * D..][..D], &h, &c);
            support[at * D..][..D].iter_mut().zip(&h).for_each(|(sum, h)| *sum += h);
        }
    }
    let of_query = |query: &[f64]| {
        let (mut h, mut c) = (query.to_vec(), vec![0.0; D]);
        for _ in 0..steps {
            let weights: Vec<f64> = support.chunks(D).map(|row| dot(row, &h).exp()).collect();
            let total: f64 = weights.iter().sum();
            let seen = (0..D).map(|at| {
                support.chunks(D).zip(&weights).map(|(row, w)| row[at] * w / total).sum::<f64>()
            });
            let x: Vec<f64> = query.iter().copied().chain(seen).collect();
            (h, c) = step(&context.attending, &x, &h, &c);
            h.iter_mut().zip(query).for_each(|(h, query)| *h += query);
        }
        h
    };
    let queries = queries.chunks(D).flat_map(of_query).collect();
    (support, queries)
}

#[test]
fn a_full_context_reads_the_support_both_ways_and_lets_queries_attend_to_it() {
    let (rows, queries) = (drawn(12, 3), drawn(9, 4));
    let attention = MatchingAttention::Cosine { scale: 4.0 };
    let config =
        MatchingNetConfig::new(D).with_context(MatchingContext::Full).with_attention(attention);
    for steps in [None, Some(2)] {
        let head = made::<Flex>(config.clone().with_context_steps(steps));
        let found = logits(&head, support(&rows, &LABELS, 2), &queries);
        let (rows, queries) = in_context(&head, &rows, &queries, steps.unwrap_or(4));
        assert_near(&found, &wanted(&rows, &queries, attention), 1e-5);
    }
}

#[test]
fn a_full_context_takes_several_tasks() {
    let config = MatchingNetConfig::new(D).with_context(MatchingContext::Full);
    let head = made::<Flex>(config);
    let tasks = [5, 6].map(|seed| (drawn(12, seed), drawn(9, seed + 10)));
    let alone =
        tasks.clone().map(|(rows, queries)| logits(&head, support(&rows, &LABELS, 2), &queries));
    let [(a, p), (b, q)] = tasks;
    let one = support::<Flex>(&a, &LABELS, 2);
    let labels = burn::tensor::Tensor::cat(vec![one.labels.clone(), one.labels], 0);
    let rows = tensor([a, b].concat().as_slice(), [2, 4, D]);
    let both = fewshot::learners::heads::EmbeddedSupport::new(rows, labels, 2);
    let found = head.fit(both).logits(tensor([p, q].concat().as_slice(), [2, 3, D]));
    assert_near(&values(found), &alone.concat(), 1e-5);
}

#[test]
fn all_parameters_of_a_full_context_are_learned() {
    let (rows, queries) = (drawn(12, 7), tensor(&drawn(9, 8), [1, 3, D]));
    let config = MatchingNetConfig::new(D).with_context(MatchingContext::Full);
    are_differences(&made::<Trained>(config), 9, 1e-3, |head| {
        weighted(head.fit(support(&rows, &LABELS, 2)).logits(queries.clone()), 9)
    });
}

#[test]
fn without_a_context_there_is_nothing_to_learn() {
    use burn::module::Module;
    assert_eq!(made::<Flex>(MatchingNetConfig::new(D)).num_params(), 0);
}
