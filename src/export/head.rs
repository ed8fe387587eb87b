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
///
/// # Conventions
/// Cosines are near 1 and slopes large. So what a cosine lacks of 1 is computed: half the squared distance between unit vectors, by
/// what both differ from the mean of the directions. A vector of zeros has no direction, and its cosines are 0.
pub(super) fn add_known(
    graph: &mut Graph,
    embeddings: &Value,
    directions: &[Vec<f64>],
    [slope, offset]: [f64; 2],
) -> Value {
    let Directions { mean, from_mean, lacks } = Directions::new(directions);
    let length = [mean.len(), lacks.len()];
    let z = graph.unit_length(embeddings);
    let mean = graph.constant("mean_direction", &length[..1], &mean);
    let from_mean = graph.constant("directions_from_mean", &length, &from_mean);
    let lacks = graph.constant("halves", &length[1..], &lacks);
    let w = graph.node("Sub", &[&z, &mean], &[]);
    let along =
        |keepdims| [("axes", Attribute::Ints(vec![1])), ("keepdims", Attribute::Int(keepdims))];
    let squares = graph.node("ReduceSumSquare", &[&w], &along(1));
    let halves = graph.scale(&squares, 0.5);
    let products = graph.node("MatMul", &[&w, &from_mean], &[]);
    let lack = graph.node("Sub", &[&lacks, &products], &[]);
    let lack = graph.node("Add", &[&lack, &halves], &[]);
    let nearest = graph.node("ReduceMin", &[&lack], &along(0));
    let of_zeros = add_lack_of_zeros(graph, &z);
    let lack = graph.node("Add", &[&nearest, &of_zeros], &[]);
    let steep = graph.scale(&lack, -slope as f32);
    let most = graph.number((slope + offset) as f32);
    let logits = graph.node("Add", &[&steep, &most], &[]);
    graph.node("Sigmoid", &[&logits], &[])
}

/// A half for rows of zeros, and 0 for others, `[n]`.
fn add_lack_of_zeros(graph: &mut Graph, z: &Value) -> Value {
    let along = [("axes", Attribute::Ints(vec![1])), ("keepdims", Attribute::Int(0))];
    let length = graph.node("ReduceL2", &[z], &along);
    let sign = graph.node("Sign", &[&length], &[]);
    let one = graph.number(1.0);
    let zero = graph.node("Sub", &[&one, &sign], &[]);
    graph.scale(&zero, 0.5)
}

/// Unit vectors of classes, as [`add_known`] takes them.
struct Directions {
    /// `m`, the mean of the unit vectors, `[d]`.
    mean: Vec<f32>,
    /// Unit vectors less `m`, `[d, classes]`.
    from_mean: Vec<f32>,
    /// Half the square of each of these, `[classes]`; a half more for a vector of zeros.
    lacks: Vec<f32>,
}

impl Directions {
    fn new(directions: &[Vec<f64>]) -> Self {
        let units: Vec<_> = directions.iter().map(|direction| unit(direction)).collect();
        let length = units.first().map_or(0, Vec::len);
        let column = |value: usize| units.iter().map(move |unit| unit[value]);
        let mean: Vec<_> =
            (0..length).map(|value| column(value).sum::<f64>() / units.len() as f64).collect();
        // Rounded first: what is taken from embeddings is the rounded mean.
        let mean: Vec<_> = mean.into_iter().map(|value| value as f32).collect();
        let from_mean = |value: usize| {
            let mean = f64::from(mean[value]);
            column(value).map(move |of| (of - mean) as f32)
        };
        let lack = |unit: &Vec<f64>| {
            let square = |(of, mean): (&f64, &f32)| (of - f64::from(*mean)).powi(2);
            let zero = unit.iter().all(|of| *of == 0.0);
            let half = unit.iter().zip(&mean).map(square).sum::<f64>() / 2.0;
            (half + if zero { 0.5 } else { 0.0 }) as f32
        };
        let lacks = units.iter().map(lack).collect();
        let from_mean = (0..length).flat_map(from_mean).collect();
        Self { mean, from_mean, lacks }
    }
}

/// The direction at length 1; zero stays zero.
fn unit(direction: &[f64]) -> Vec<f64> {
    let length = direction.iter().map(|value| value * value).sum::<f64>().sqrt();
    let factor = if length > 0.0 { 1.0 / length } else { 0.0 };
    direction.iter().map(|value| value * factor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_squared_distances_are_what_cosines_lack_of_1() {
        let Directions { mean, from_mean, lacks } =
            Directions::new(&[vec![3.0, 4.0], vec![0.0, 2.0], vec![0.0, 0.0]]);
        let cosine = |z: [f32; 2], class: usize| {
            let w = [z[0] - mean[0], z[1] - mean[1]];
            let product = w[0] * from_mean[class] + w[1] * from_mean[3 + class];
            1.0 - (lacks[class] - product + (w[0] * w[0] + w[1] * w[1]) / 2.0)
        };
        let cosines = [0, 1, 2].map(|class| cosine([1.0, 0.0], class));
        for (cosine, expected) in cosines.into_iter().zip([0.6, 0.0, 0.0]) {
            assert!((cosine - expected).abs() < 1e-6, "{cosine} and {expected}");
        }
    }
}
