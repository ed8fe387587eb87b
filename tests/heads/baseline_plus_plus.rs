use burn::backend::Flex;
use burn::tensor::Tensor;
use fewshot::learners::heads::{BaselinePlusPlus, EmbeddedSupport, Head, Sgd};

use super::descending::{Task, assert_near, cosine, descended, dot, normalized};

/// Scale, gain and direction of each class, after training from where the head starts.
fn trained(task: &Task, scale: f64, steps: usize) -> Vec<f64> {
    let size = task.ways * task.features;
    let start = normalized(&task.normalized().prototypes(), task.features);
    let start = [start, vec![1.0; task.ways]].concat();
    let loss = |layer: &[f64]| {
        let (directions, gains) = layer.split_at(size);
        let directions: Vec<_> = directions.chunks(task.features).collect();
        task.cross_entropy(|x, k| scale * gains[k] * cosine(x, directions[k]))
    };
    let layer = descended(&loss, &start, steps);
    let units = normalized(&layer[..size], task.features);
    let gain = |i: usize| scale * layer[size + i / task.features];
    units.iter().enumerate().map(|(i, unit)| unit * gain(i)).collect()
}

#[test]
fn steps_are_those_of_directions_and_gains() {
    let task = Task::new(2, 6, 0.8, 1);
    for steps in [1, 2, 100] {
        let sgd = Sgd { steps, ..Sgd::default() };
        let head = BaselinePlusPlus { sgd, scale: 5.0 };
        let found = head.class_weights(task.support::<Flex>());
        assert_near(found, &trained(&task, 5.0, steps), 2e-5);
    }
}

#[test]
fn the_scale_is_that_of_the_authors() {
    let task = Task::new(1, 6, 0.8, 1);
    let found = BaselinePlusPlus::new().class_weights(task.support::<Flex>());
    assert_near(found, &trained(&task, 2.0, 100), 2e-5);
}

#[test]
fn logits_are_products_with_normalized_queries() {
    let task = Task::new(2, 6, 0.8, 1);
    let weights = BaselinePlusPlus::new().class_weights(task.support::<Flex>());
    let weights: Vec<f64> = weights.into_data().iter::<f64>().collect();
    let queries = task.normalized().queries;
    let of = |x: &[f64]| weights.chunks(task.features).map(|w| dot(x, w)).collect::<Vec<_>>();
    let wanted: Vec<f64> = queries.chunks(task.features).flat_map(of).collect();
    let fitted = Head::<Flex>::fit(&BaselinePlusPlus::new(), task.support());
    assert_near(fitted.logits(task.queries()), &wanted, 1e-6);
}

#[test]
fn a_class_of_zeros_has_finite_logits() {
    let device = Default::default();
    let embeddings = Tensor::<Flex, 3>::from_floats([[[0.0, 0.0], [1.0, 2.0]]], &device);
    let labels = Tensor::from_ints([[0, 1]], &device);
    let support = EmbeddedSupport::new(embeddings.clone(), labels, 2);
    let logits = BaselinePlusPlus::new().fit(support).logits(embeddings);
    assert!(logits.into_data().iter::<f32>().all(f32::is_finite));
}
