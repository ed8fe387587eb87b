//! Products of low precision: what is rounded, and what is not.

mod check;
mod half_layers;
mod products;
mod second;
mod stack;
mod tf32;

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, FloatDType, Tensor, TensorData};
use fewshot_kernels::Precision;

use crate::numbers::Numbers;

type Once = Autodiff<Flex>;
type Twice = Autodiff<Once>;

/// The low precisions, with the largest relative error of a rounding.
const LOW: [(Precision, f64); 2] =
    [(Precision::MixedBf16, 1.0 / 256.0), (Precision::MixedF16, 1.0 / 2048.0)];

fn low(precision: Precision) -> FloatDType {
    precision.low().expect("a low precision")
}

fn drawn<B: Backend, const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<B, D> {
    Tensor::from_data(Numbers(seed).data(shape, |x| x), (&Default::default(), DType::F32))
}

/// Rounded to the type of the products, and as a leaf of f64.
fn rounded<B: AutodiffBackend, const D: usize>(
    tensor: &Tensor<B, D>,
    precision: Precision,
) -> Tensor<B, D> {
    tensor.clone().cast(low(precision)).cast(FloatDType::F64).detach().require_grad()
}

fn read<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f64> {
    let data: TensorData = tensor.cast(FloatDType::F64).into_data();
    data.into_vec().expect("doubles")
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, value| most.max(value.abs()))
}

/// Every value within `relative` of the expected one, or `absolute` of the largest.
fn assert_near(what: &str, found: &[f64], expected: &[f64], relative: f64, absolute: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let least = absolute * largest(expected);
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let (error, bound) = ((found - expected).abs(), relative * expected.abs() + least);
        assert!(error <= bound, "{what}[{index}] is {found}, not {expected} (within {bound:e})");
    }
}

/// That `found` is further from `exact` than rounding in f32 takes it.
fn assert_rounded(what: &str, found: &[f64], exact: &[f64], rounding: f64) {
    let errors: Vec<_> = found.iter().zip(exact).map(|(found, exact)| found - exact).collect();
    let error = largest(&errors) / largest(exact);
    assert!(error > rounding / 8.0, "{what}: {error:e} from exact, as if nothing were rounded");
}
