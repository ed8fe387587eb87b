use burn::backend::{Autodiff, Flex};
use fewshot::learners::heads::{Baseline, Head, Sgd};

use super::descending::{Task, assert_near, descended, dot};

/// Weights of all classes, then their biases.
fn loss(task: &Task, layer: &[f64]) -> f64 {
    let (weights, biases) = layer.split_at(task.ways * task.features);
    let weights: Vec<_> = weights.chunks(task.features).collect();
    task.cross_entropy(|x, k| dot(x, weights[k]) + biases[k])
}

#[test]
fn steps_are_those_of_a_linear_layer() {
    let task = Task::new(2, 6, 0.5, 1);
    for steps in [1, 2, 3, 100] {
        let start = vec![0.0; task.ways * (task.features + 1)];
        let wanted = descended(&|layer| loss(&task, layer), &start, steps);
        let (of_weights, of_biases) = wanted.split_at(task.ways * task.features);
        let head = Baseline { sgd: Sgd { steps, ..Sgd::default() } };
        let (weights, biases) = head.layer(task.support::<Flex>());
        assert_near(weights, of_weights, 1e-6);
        assert_near(biases, of_biases, 1e-6);
    }
}

#[test]
fn logits_are_those_of_the_layer() {
    let task = Task::new(2, 6, 0.5, 1);
    let (weights, biases) = Baseline::new().layer(task.support::<Flex>());
    let weights: Vec<f64> = weights.into_data().iter::<f64>().collect();
    let biases: Vec<f64> = biases.into_data().iter::<f64>().collect();
    let of = |x: &[f64]| {
        let classes = weights.chunks(task.features).zip(&biases);
        classes.map(|(w, b)| dot(x, w) + b).collect::<Vec<_>>()
    };
    let wanted: Vec<f64> = task.queries.chunks(task.features).flat_map(of).collect();
    let fitted = Head::<Flex>::fit(&Baseline::new(), task.support());
    assert_near(fitted.logits(task.queries()), &wanted, 1e-6);
}

#[test]
fn enough_steps_lower_the_loss_to_where_it_does_not_change() {
    let task = Task::new(2, 6, 0.5, 1);
    let layer = |steps| {
        let sgd = Sgd { steps, rate: 1.0, weight_decay: 0.05, ..Sgd::default() };
        let (weights, biases) = Baseline { sgd }.layer(task.support::<Flex>());
        [weights.flatten::<1>(0, 2), biases.flatten(0, 1)]
            .map(|of| of.into_data().iter::<f64>().collect::<Vec<_>>())
            .concat()
    };
    let regularized = |layer: &[f64]| loss(&task, layer) + 0.025 * dot(layer, layer);
    let found = layer(500);
    let slopes = super::descending::gradient(&regularized, &found);
    assert!(slopes.iter().all(|slope| slope.abs() < 1e-5), "{slopes:?}");
    assert!(regularized(&found) < regularized(&layer(5)));
}

#[test]
fn queries_have_the_gradient_of_a_linear_layer_and_the_support_has_none() {
    type Diff = Autodiff<Flex>;
    let task = Task::new(2, 6, 0.5, 1);
    let mut support = task.support::<Diff>();
    support.embeddings = support.embeddings.require_grad();
    let queries = task.queries::<Diff>().require_grad();
    let fitted = Baseline::new().fit(support.clone());
    let gradients = fitted.logits(queries.clone()).narrow(2, 0, 1).sum().backward();
    let (weights, _) = Baseline::new().layer(task.support::<Flex>());
    let first: Vec<f64> = weights.narrow(1, 0, 1).into_data().iter::<f64>().collect();
    assert_near(queries.grad(&gradients).unwrap(), &first.repeat(6), 1e-6);
    assert!(support.embeddings.grad(&gradients).is_none());
}
