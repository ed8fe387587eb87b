//! Layers whose tensors are f16.

use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, FloatDType, Tensor, f16};
use fewshot_kernels::{NormStatistics, batch_norm, with_reference};

use super::case::{By, Case, Layer, Layout};
use super::laws::{norm, norm_relu, plain};
use super::run::*;
use crate::judge::{Judge, assert_close, largest, read};
use crate::numbers::Numbers;

/// The largest relative error of rounding to f16.
const ROUNDING: f32 = 1.0 / 2048.0;

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for x in [[3, 1, 5, 7], [2, 31, 3, 3], [4, 33, 6, 4], [1, 3, 9, 11], [2, 2, 70, 68]] {
        for layer in [Layer::MaxPool, Layer::Average] {
            cases.push(plain(layer, Layout::Contiguous, x));
        }
        for running in [false, true] {
            cases.push(norm(Layout::Contiguous, x, running));
            for pool in [false, true] {
                cases.push(norm_relu(Layout::Contiguous, x, running, pool));
            }
        }
    }
    for layout in [Layout::Permuted, Layout::Expanded] {
        cases.push(norm(layout, [3, 4, 6, 5], false));
        cases.push(norm_relu(layout, [3, 4, 6, 5], false, true));
    }
    cases
}

/// Outputs and gradients are rounded once; what is differentiated after these, once more on its way in.
pub fn layers_of_f16_are_those_of_their_elements<B: AutodiffBackend>() {
    for case in cases().into_iter().map(Case::in_f16) {
        let what = format!("{:?} of {:?}", case.layer, case.operands[0].shape);
        let length = case.forward(By::Reference, &case.leaves::<Judge>()).dims()[0];
        let weights = Numbers(5).values(length).into_iter().map(|v| f16::from_f32(v).to_f32());
        let weights: Vec<_> = weights.collect();
        let expected = first::<Judge>(&case, By::Reference, Some(&weights), |_| true);
        let found = first::<B>(&case, By::Kernels, Some(&weights), |_| true);
        for (found, expected) in found.output.iter().zip(&expected.output) {
            let bound = 1.01 * ROUNDING * expected.abs() + 1e-6;
            assert!((found - expected).abs() <= bound, "{what}: {found}, not {expected}");
        }
        assert_outcome(&what, &found, &expected, [1.01 * ROUNDING; 2]);
        let outer = Outer::Direction;
        let expected = second::<Judge>(&case, By::Reference, outer, Some(&weights));
        let found = second::<B>(&case, By::Kernels, outer, Some(&weights));
        assert_outcome(
            &format!("second, {what}"),
            &found,
            &expected,
            [1.01, 8.0].map(|n| n * ROUNDING),
        );
    }
}

/// A mean between two numbers of f16, and a variance that is none: no sum is rounded.
pub fn moments_of_f16_are_f32<B: AutodiffBackend>() {
    let values: Vec<f32> =
        (0..64).map(|i| if i % 2 == 0 { 16.0 } else { 16.0 + 1.0 / 64.0 }).collect();
    let x = constant::<B>(&values).reshape([4, 1, 4, 4]).cast(FloatDType::F16).require_grad();
    let (y, moments) = batch_norm(x.clone(), None, None, NormStatistics::Batch, 1e-8);
    let moments = moments.expect("of the batch");
    assert_eq!([moments.mean.dtype(), moments.variance.dtype()], [DType::F32; 2]);
    assert_eq!(read(moments.mean), [16.0 + 1.0 / 128.0]);
    assert_eq!(read(moments.variance), [1.0 / 128.0 / 128.0]);
    let wanted: Vec<f32> = values.iter().map(|&v| if v == 16.0 { -1.0 } else { 1.0 }).collect();
    assert_close("normalised", &read(y.clone().cast(FloatDType::F32)), &wanted, 1e-3);
    let gradient = x.grad(&y.sum().backward()).expect("it is tracked");
    assert_eq!(gradient.dtype(), DType::F16);
}

/// Gains in f32 of a map in f16, and the other way round: the output is of the map's type.
pub fn parameters_may_be_of_another_type_than_the_map<B: AutodiffBackend>() {
    let case = norm(Layout::Contiguous, [3, 4, 6, 5], false).in_f16();
    let expected = read(case.forward(By::Reference, &case.leaves::<Judge>()));
    for types in [[FloatDType::F16, FloatDType::F32], [FloatDType::F32, FloatDType::F16]] {
        let [map, vector] = types;
        let [x, gamma, beta]: [Tensor<B, 1>; 3] = case.leaves::<B>().try_into().expect("three");
        let gamma = gamma.cast(vector).require_grad();
        let x = x.reshape([3, 4, 6, 5]).cast(map);
        let beta = Some(beta.cast(vector));
        let norm = || {
            let (gamma, beta) = (Some(gamma.clone()), beta.clone());
            let (y, _) = batch_norm(x.clone(), gamma, beta, NormStatistics::Batch, 1e-5);
            assert_eq!(y.dtype(), map.into());
            y
        };
        let y = norm();
        let gradient = gamma.grad(&y.clone().sum().backward()).expect("it is tracked");
        assert_eq!(gradient.dtype(), vector.into());
        let bound = ROUNDING * largest(&expected);
        for (y, bound) in [(y, bound), (with_reference(norm), 8.0 * bound)] {
            let found = read(y.cast(FloatDType::F32).flatten::<1>(0, 3));
            assert_close("normalised", &found, &expected, bound);
        }
    }
}
