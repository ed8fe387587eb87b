//! Outputs and their derivatives, and how they are compared.

use burn::backend::Autodiff;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};

use super::case::{By, Case};
use crate::judge::{Judge, assert_close, largest, read};
use crate::numbers::Numbers;

pub const VALUES: f32 = 2e-5;
pub const GRADIENTS: f32 = 5e-5;
pub const SECOND: f32 = 5e-4;

/// What is differentiated after the first gradients.
#[derive(Clone, Copy, Debug)]
pub enum Outer {
    /// The sum of their squares.
    Squares,
    /// Their product with a fixed direction.
    Direction,
}

/// An output and derivatives, by operand, and by the output's gradient where there is one.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub output: Vec<f32>,
    pub gradients: Vec<(&'static str, Vec<f32>)>,
}

/// Weights of a sum over a tensor.
pub fn direction<B: Backend>(length: usize, seed: u64) -> Tensor<B, 1> {
    constant(&Numbers(1000 + seed).values(length))
}

pub fn constant<B: Backend>(values: &[f32]) -> Tensor<B, 1> {
    Tensor::from_data(TensorData::from(values), &Default::default())
}

/// The output, and the gradients of its product with `weights` by the operands that are `tracked`.
pub fn first<B: AutodiffBackend>(
    case: &Case,
    by: By,
    weights: Option<&[f32]>,
    tracked: impl Fn(&str) -> bool,
) -> Outcome {
    let leaves: Vec<Tensor<B, 1>> = case
        .leaves()
        .into_iter()
        .zip(&case.operands)
        .map(|(leaf, operand)| if tracked(operand.name) { leaf.require_grad() } else { leaf })
        .collect();
    let output = case.forward(by, &leaves);
    let length = output.dims()[0];
    let weights = weights.map_or_else(|| direction(length, 0), constant);
    let found = (output.clone() * weights).sum().backward();
    let gradients = case.operands.iter().zip(&leaves);
    let gradients = gradients
        .filter_map(|(operand, leaf)| Some((operand.name, read(leaf.grad(&found)?))))
        .collect();
    Outcome { output: read(output), gradients }
}

/// The first gradients, one after the other, and the derivatives of a function of them by the
/// operands and by the weights of the first loss.
pub fn second<B: AutodiffBackend>(
    case: &Case,
    by: By,
    outer: Outer,
    weights: Option<&[f32]>,
) -> Outcome {
    let inner: Vec<Tensor<B, 1>> = case.leaves().into_iter().map(Tensor::require_grad).collect();
    let lift = |leaf: &Tensor<B, 1>| Tensor::<Autodiff<B>, 1>::from_inner(leaf.clone());
    let lifted: Vec<_> = inner.iter().map(|leaf| lift(leaf).require_grad()).collect();
    let output = case.forward(by, &lifted);
    let length = output.dims()[0];
    let of_output = weights.map_or_else(|| direction(length, 0), constant).require_grad();
    let found = (output * lift(&of_output)).sum().backward();
    let mut firsts = Vec::new();
    let mut parts = Vec::new();
    for (seed, leaf) in (1..).zip(&lifted) {
        let gradient = leaf.grad(&found).expect("every operand has a gradient");
        firsts.push(gradient.clone());
        parts.push(match outer {
            Outer::Squares => (gradient.clone() * gradient).sum(),
            Outer::Direction => {
                let length = gradient.dims()[0];
                (gradient * direction(length, seed)).sum()
            }
        });
    }
    let of_loss = Tensor::cat(parts, 0).sum().backward();
    let names = case.operands.iter().map(|operand| operand.name).chain(["output_gradient"]);
    let gradients = names.zip(inner.iter().chain([&of_output])).map(|(name, leaf)| {
        // What nothing depends on may have no gradient at all.
        let gradient = leaf.grad(&of_loss).map(read);
        (name, gradient.unwrap_or_else(|| vec![0.0; leaf.dims()[0]]))
    });
    let gradients = gradients.collect();
    Outcome { output: read(Tensor::cat(firsts, 0)), gradients }
}

/// Equal up to `tolerance` times the largest value of each tensor, and never judged more strictly
/// than a twentieth of the largest of all gradients: what is smaller is a sum of terms that cancel.
pub fn assert_outcome(what: &str, found: &Outcome, expected: &Outcome, tolerances: [f32; 2]) {
    let scale = largest(&expected.output);
    assert_close(what, &found.output, &expected.output, tolerances[0] * scale);
    let all = expected.gradients.iter().map(|(_, values)| largest(values)).fold(0.0, f32::max);
    assert_eq!(found.gradients.len(), expected.gradients.len(), "{what}");
    for (found, expected) in found.gradients.iter().zip(&expected.gradients) {
        assert_eq!(found.0, expected.0, "{what}");
        let bound = tolerances[1] * largest(&expected.1).max(all / 20.0);
        assert_close(&format!("{what}, {}", found.0), &found.1, &expected.1, bound);
    }
}

/// The kernels on `B` give what the reference gives on the judge, in value and in both gradients.
pub fn assert_equal_to_judge<B: AutodiffBackend>(case: &Case) {
    let layout = case.operands[0].layout;
    let shapes: Vec<_> = case.operands.iter().map(|o| (o.name, &o.shape)).collect();
    let what = format!("{:?} of {layout:?} {shapes:?}", case.layer);
    let expected = first::<Judge>(case, By::Reference, None, |_| true);
    assert!(expected.gradients.iter().any(|(_, values)| largest(values) > 0.0), "{what}");
    let found = first::<B>(case, By::Kernels, None, |_| true);
    assert_outcome(&what, &found, &expected, [VALUES, GRADIENTS]);
    let expected = second::<Judge>(case, By::Reference, Outer::Direction, None);
    let found = second::<B>(case, By::Kernels, Outer::Direction, None);
    assert_outcome(&format!("second, {what}"), &found, &expected, [GRADIENTS, SECOND]);
}
