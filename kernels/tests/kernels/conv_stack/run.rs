//! Features, moments and gradients of a network, and how they are compared.

use std::collections::HashMap;

use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_kernels::conv_stack::reference;
use fewshot_kernels::{StackOutput, conv_stack};

use super::leaves::{Leaves, Stack};
use super::network::Network;
use crate::judge::{Judge, assert_close, largest, read};

pub const VALUES: f32 = 2e-5;
pub const GRADIENTS: f32 = 2e-4;
pub const SECOND: f32 = 2e-3;

#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub dims: [usize; 4],
    pub features: Vec<f32>,
    /// Mean and variance of every block.
    pub moments: Vec<[Vec<f32>; 2]>,
    pub gradients: HashMap<String, Vec<f32>>,
}

pub fn read_all<B: Backend>(tensors: Vec<(String, Tensor<B, 1>)>) -> HashMap<String, Vec<f32>> {
    tensors.into_iter().map(|(name, tensor)| (name, read(tensor))).collect()
}

pub fn run<B: AutodiffBackend>(
    network: &Network,
    stack: Stack<B>,
    tracked: impl Fn(&str) -> bool,
) -> Outcome {
    let leaves = Leaves::new(network, tracked);
    let StackOutput { features, moments } = leaves.forward(network, stack);
    let loss = leaves.loss(features.clone());
    let gradients = read_all::<B::InnerBackend>(leaves.gradients(&loss.backward()));
    Outcome {
        dims: features.dims(),
        features: read(features),
        moments: moments.into_iter().map(|pair| [read(pair.mean), read(pair.variance)]).collect(),
        gradients,
    }
}

pub fn all_but_output_gradient(name: &str) -> bool {
    name != "output_gradient"
}

/// Equal up to `tolerance` times the largest value of each tensor.
///
/// A gradient far smaller than the others is a sum of terms that cancel, and its rounding is that of
/// the terms: nothing is judged more strictly than a twentieth of the largest gradient, and what
/// vanishes in exact arithmetic, by the largest one.
pub fn assert_gradients(
    what: &str,
    found: &HashMap<String, Vec<f32>>,
    expected: &HashMap<String, Vec<f32>>,
    tolerance: f32,
    vanishes: impl Fn(&str) -> bool,
) {
    let names = |of: &HashMap<String, Vec<f32>>| {
        let mut names: Vec<_> = of.keys().cloned().collect();
        names.sort();
        names
    };
    assert_eq!(names(found), names(expected), "{what}");
    let all = expected.values().map(|values| largest(values)).fold(0.0, f32::max);
    for (name, expected) in expected {
        let scale = if vanishes(name) { all } else { largest(expected).max(all / 20.0) };
        assert_close(&format!("{what}, {name}"), &found[name], expected, tolerance * scale);
    }
}

/// A bias before batch statistics changes nothing.
pub fn vanishes_under_batch_statistics(name: &str) -> bool {
    name.ends_with("conv.bias")
}

/// `stack` on `B` gives what the reference gives on the judge.
pub fn assert_equal_to_judge<B: AutodiffBackend>(network: &Network, stack: Stack<B>) {
    let what = &network.name;
    let expected = run::<Judge>(network, reference::conv_stack, all_but_output_gradient);
    assert!(expected.gradients.values().any(|values| largest(values) > 0.0), "{what}");
    let found = run::<B>(network, stack, all_but_output_gradient);
    assert_eq!(found.dims, expected.dims, "{what}");
    let bound = VALUES * largest(&expected.features);
    assert_close(&format!("{what}, features"), &found.features, &expected.features, bound);
    let blocks = if network.running.is_some() { 0 } else { network.layers.len() };
    assert_eq!([found.moments.len(), expected.moments.len()], [blocks; 2], "{what}");
    for (found, expected) in found.moments.iter().zip(&expected.moments) {
        let variance = largest(&expected[1]);
        let bound = VALUES * variance.sqrt();
        assert_close(&format!("{what}, mean"), &found[0], &expected[0], bound);
        assert_close(&format!("{what}, variance"), &found[1], &expected[1], VALUES * variance);
    }
    let batch = network.running.is_none();
    assert_gradients(what, &found.gradients, &expected.gradients, GRADIENTS, |name| {
        batch && vanishes_under_batch_statistics(name)
    });
}

pub fn assert_equal_under_both_statistics<B: AutodiffBackend>(network: Network) {
    assert_equal_to_judge::<B>(&network, conv_stack);
    assert_equal_to_judge::<B>(&network.with_running(), conv_stack);
}
