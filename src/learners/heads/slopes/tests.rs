use burn::backend::{Autodiff, Flex};
use burn::tensor::{Tensor, TensorData};

use super::*;

type Diff = Autodiff<Flex>;

/// Logits of 2 tasks, 4 examples and 3 classes, the last of which is all but impossible.
fn logits<B: Backend>() -> Tensor<B, 3> {
    let values: Vec<f32> = (0..24)
        .map(|i| ((i * 37 + 11) % 23) as f32 / 5.0 - if i % 3 == 2 { 9.0 } else { 0.0 })
        .collect();
    Tensor::from_data(TensorData::new(values, [2, 4, 3]), &Default::default())
}

fn assert_slopes(slopes: Tensor<Flex, 3>, loss: impl Fn(Tensor<Diff, 3>) -> Tensor<Diff, 3>) {
    let logits = logits::<Diff>().require_grad();
    let gradients = loss(logits.clone()).sum().backward();
    let wanted = logits.grad(&gradients).unwrap();
    let largest: f32 = wanted.clone().abs().max().into_scalar();
    assert!(largest > 0.01, "the loss is flat");
    slopes
        .into_data()
        .assert_approx_eq::<f32>(&wanted.into_data(), burn::tensor::Tolerance::absolute(2e-6));
}

fn labels<B: Backend>() -> Tensor<B, 3> {
    let mut values = vec![0.0_f32; 24];
    for (example, class) in [0, 1, 2, 0, 1, 1, 0, 2].into_iter().enumerate() {
        values[3 * example + class] = 1.0;
    }
    Tensor::from_data(TensorData::new(values, [2, 4, 3]), &Default::default())
}

#[test]
fn slopes_of_the_cross_entropy_are_those_of_autodiff() {
    let slopes = cross_entropy_slopes(logits::<Flex>(), labels());
    assert_slopes(slopes, |logits| {
        (log_softmax(logits, 2) * labels()).sum_dim(2).mean_dim(1).neg()
    });
}

#[test]
fn slopes_of_the_entropy_are_those_of_autodiff() {
    let slopes = entropy_slopes(logits::<Flex>(), 0.0, 1.0);
    assert_slopes(slopes, |logits| {
        let p = softmax(logits, 2);
        (p.clone() * p.log()).sum_dim(2).mean_dim(1).neg()
    });
}

#[test]
fn slopes_of_the_mutual_information_are_those_of_autodiff() {
    let slopes = entropy_slopes(logits::<Flex>(), 0.7, 0.4);
    assert_slopes(slopes, |logits| {
        let p = softmax(logits, 2);
        let mean = p.clone().mean_dim(1);
        let of_mean = (mean.clone() * mean.log()).sum_dim(2) * 0.7;
        of_mean - (p.clone() * p.log()).sum_dim(2).mean_dim(1) * 0.4
    });
}

#[test]
fn a_class_that_nobody_belongs_to_has_finite_slopes() {
    let logits = Tensor::<Flex, 3>::from_floats([[[0.0, -1e4], [1.0, -1e4]]], &Default::default());
    let slopes = entropy_slopes(logits, 1.0, 1.0).abs().max().into_scalar();
    assert!(slopes < 1e-6, "{slopes}");
}
