//! Heads, and the maps from their logits to probabilities.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::onnx::{Attribute, Graph, Value};

use crate::learners::heads::{LEAST_SHARE, LengthNormalisation, LogitFormula};

/// Adds the logits `[n, classes]` of embeddings `[n, d]`, up to a number that all classes share.
pub(super) fn add_logits<B: Backend>(
    graph: &mut Graph,
    formula: &LogitFormula<B>,
    embeddings: &Value,
) -> Value {
    match formula {
        LogitFormula::Linear { lengths, weights, intercepts } => {
            let z = add_lengths(graph, *lengths, embeddings);
            let weights = graph.tensor("class_weights", weights.clone());
            let intercepts = graph.tensor("class_intercepts", intercepts.clone());
            graph.linear(&z, &weights, &intercepts)
        }
        LogitFormula::Attention { lengths, directions, classes } => {
            let z = add_lengths(graph, *lengths, embeddings);
            let directions = graph.tensor("directions", directions.clone());
            let classes = graph.tensor("classes_of_examples", classes.clone());
            let scores = graph.node("MatMul", &[&z, &directions], &[]);
            let shares = graph.softmax(&scores, -1);
            let least = graph.number(LEAST_SHARE as f32);
            let of_classes = graph.linear(&shares, &classes, &least);
            graph.node("Log", &[&of_classes], &[])
        }
        LogitFormula::Mahalanobis { mean, centred, prototypes, inner, regulariser } => {
            let mean = graph.tensor("mean_of_examples", mean.clone());
            let z = graph.node("Sub", &[embeddings, &mean], &[]);
            let explained = add_explained(graph, &z, [centred, prototypes], inner);
            let squares = prototypes.clone().square().sum_dim(1).swap_dims(0, 1);
            let half = graph.tensor("half_squares", squares * -0.5);
            let turned = graph.tensor("prototypes", prototypes.clone().swap_dims(0, 1));
            let straight = graph.linear(&z, &turned, &half);
            let logits = graph.node("Add", &[&straight, &explained], &[]);
            graph.scale(&logits, (1.0 / regulariser) as f32)
        }
    }
}

/// Half of `v I_k v^T` of a [`LogitFormula::Mahalanobis`], `[n, classes]`.
fn add_explained<B: Backend>(
    graph: &mut Graph,
    z: &Value,
    [centred, prototypes]: [&Tensor<B, 2>; 2],
    inner: &Tensor<B, 3>,
) -> Value {
    let across = centred.clone().swap_dims(0, 1);
    let of_means = fewshot_kernels::product(prototypes.clone(), across.clone());
    let of_means = graph.tensor("prototypes_along_examples", of_means.unsqueeze_dim::<3>(1));
    let across = graph.tensor("examples", across);
    let of_queries = graph.node("MatMul", &[z, &across], &[]);
    let differences = graph.node("Sub", &[&of_queries, &of_means], &[]);
    let inner = graph.tensor("covariances", inner.clone());
    let product = graph.node("MatMul", &[&differences, &inner], &[]);
    let products = graph.node("Mul", &[&product, &differences], &[]);
    let last = graph.integers("axes", &[2]);
    let sums = graph.node("ReduceSum", &[&products, &last], &[("keepdims", Attribute::Int(0))]);
    let sums = graph.transpose(&sums, &[1, 0]);
    graph.scale(&sums, 0.5)
}

fn add_lengths(graph: &mut Graph, lengths: LengthNormalisation, embeddings: &Value) -> Value {
    match lengths {
        LengthNormalisation::Unit => graph.unit_length(embeddings),
        LengthNormalisation::Given => embeddings.clone(),
    }
}

/// Adds the probabilities of logits `[n, classes]` at a temperature.
pub(super) fn add_probabilities(graph: &mut Graph, logits: &Value, temperature: f64) -> Value {
    let temperature = graph.constant("temperature", &[], &[temperature as f32]);
    let logits = graph.node("Div", &[logits, &temperature], &[]);
    graph.softmax(&logits, -1)
}

/// Adds the probability `[n]` of a known class at all: a sigmoid of the largest cosine with one of these directions, times a slope,
/// plus an offset.
pub(super) fn add_known(
    graph: &mut Graph,
    embeddings: &Value,
    directions: &[Vec<f64>],
    [slope, offset]: [f64; 2],
) -> Value {
    let length = directions.first().map_or(0, Vec::len);
    let units: Vec<_> = directions.iter().map(|direction| unit(direction)).collect();
    let column = |value: usize| units.iter().map(move |unit| unit[value] as f32);
    let turned: Vec<_> = (0..length).flat_map(column).collect();
    let directions = graph.constant("class_directions", &[length, units.len()], &turned);
    let z = graph.unit_length(embeddings);
    let cosines = graph.node("MatMul", &[&z, &directions], &[]);
    let along = [("axes", Attribute::Ints(vec![1])), ("keepdims", Attribute::Int(0))];
    let nearest = graph.node("ReduceMax", &[&cosines], &along);
    let slope = graph.constant("slope", &[], &[slope as f32]);
    let offset = graph.constant("offset", &[], &[offset as f32]);
    let scaled = graph.node("Mul", &[&nearest, &slope], &[]);
    let logits = graph.node("Add", &[&scaled, &offset], &[]);
    graph.node("Sigmoid", &[&logits], &[])
}

/// The direction at length 1; zero stays zero.
fn unit(direction: &[f64]) -> Vec<f64> {
    let length = direction.iter().map(|value| value * value).sum::<f64>().sqrt();
    let factor = if length > 0.0 { 1.0 / length } else { 0.0 };
    direction.iter().map(|value| value * factor).collect()
}
