//! Where rules settle, beside an eigendecomposition.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::rules::{first, step};
use super::{assert_close, on_accelerators, on_backend, on_every_backend, random, read, tensor};
use crate::plasticity::{Hebb, Oja, PlasticityRule, Sanger, Subspace};

on_every_backend! {
    hebb_grows_by_one_plus_rate_times_eigenvalue
    oja_finds_the_first_component_and_length_one
    sanger_finds_the_components_in_order
    the_subspace_rule_finds_their_space
}

/// Batches of three orthogonal inputs of squared lengths 4, 1 and 0.25 times the inputs' number.
fn components<B: Backend>() -> (Tensor<B, 2>, [[f32; 3]; 3]) {
    let axes = [[2.0, 2.0, 1.0], [-2.0, 1.0, 2.0], [1.0, -2.0, 2.0]]
        .map(|axis| axis.map(|v: f32| v / 3.0));
    let scale = 3.0f32.sqrt();
    let rows = axes.iter().zip([2.0, 1.0, 0.5]);
    let rows: Vec<f32> = rows.flat_map(|(axis, s)| axis.map(|value| value * s * scale)).collect();
    (tensor(&rows, [3, 3]), axes)
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn settled<B: Backend, R: PlasticityRule<B>>(rule: R, neurons: usize) -> Vec<f32> {
    let (x, _) = components::<B>();
    let mut weight = random::<B, 2>(11, [neurons, 3]) * 0.3;
    let mut state = first(&rule, &weight);
    for _ in 0..600 {
        (weight, state) = step(&rule, weight, x.clone(), state, 0.1);
    }
    read(weight)
}

fn hebb_grows_by_one_plus_rate_times_eigenvalue<B: Backend>() {
    let (x, axes) = components::<B>();
    let mut weight = tensor::<B, 2>(&axes[1], [1, 3]);
    for _ in 0..20 {
        (weight, _) = step(&Hebb::new(), weight, x.clone(), [None, None], 0.05);
    }
    let grown = 1.05f32.powi(20);
    let expected = axes[1].map(|value| value * grown);
    assert_close("weight", &read(weight), &expected, 1e-4);
}

fn oja_finds_the_first_component_and_length_one<B: Backend>() {
    let (_, axes) = components::<B>();
    for row in settled::<B, _>(Oja, 2).chunks(3) {
        assert!(cosine(row, &axes[0]).abs() > 0.99, "{row:?}");
        let length = row.iter().map(|value| value * value).sum::<f32>().sqrt();
        assert!((length - 1.0).abs() < 0.05, "{length}");
    }
}

fn sanger_finds_the_components_in_order<B: Backend>() {
    let (_, axes) = components::<B>();
    for (row, axis) in settled::<B, _>(Sanger, 3).chunks(3).zip(&axes) {
        assert!(cosine(row, axis).abs() > 0.99, "{row:?} is not along {axis:?}");
        let length = row.iter().map(|value| value * value).sum::<f32>().sqrt();
        assert!((length - 1.0).abs() < 0.05, "{length}");
    }
}

fn the_subspace_rule_finds_their_space<B: Backend>() {
    let (_, axes) = components::<B>();
    let actual = settled::<B, _>(Subspace, 2);
    let (a, b) = (&actual[..3], &actual[3..]);
    assert!(cosine(a, b).abs() < 0.01, "{actual:?}");
    for row in [a, b] {
        let length = row.iter().map(|value| value * value).sum::<f32>().sqrt();
        assert!((length - 1.0).abs() < 0.05, "{length}");
        // The third component is what is left out.
        assert!(cosine(row, &axes[2]).abs() < 0.01, "{row:?}");
    }
    let aligned = cosine(a, &axes[0]).abs();
    assert!(aligned < 0.99, "a basis of the space need not be the components: {aligned}");
}
