//! Laws of plasticity, on every backend.

mod components;
#[cfg(any(feature = "wgpu", feature = "cuda"))]
mod fused;
mod gradients;
mod hierarchy;
mod layers;
mod reactive;
mod relative;
mod rules;
mod settings;
mod trace;

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

use crate::random::{Purpose, Stream};

fn tensor<B: Backend, const D: usize>(values: &[f32], shape: [usize; D]) -> Tensor<B, D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), &Default::default())
}

fn read<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// Bell-shaped numbers of deviation 1 that depend on the seed alone.
fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut random = Stream::new(seed, Purpose::Sources, [1 << 40, 0]);
    (0..count).map(|_| random.irwin_hall(1.0) as f32).collect()
}

fn random<B: Backend, const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<B, D> {
    tensor(&noise(seed, shape.iter().product()), shape)
}

fn assert_close(what: &str, actual: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(actual.len(), expected.len(), "{what}: length");
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let error = (actual - expected).abs();
        assert!(error <= tolerance, "{what}[{index}] is {actual}, not {expected}");
    }
}

macro_rules! on_backend {
    ($backend:ident, $feature:literal, $type:ty, $also:meta, $($law:ident)*) => {
        #[cfg(feature = $feature)]
        #[allow(deprecated)]
        mod $backend {
            $(
                #[test]
                #[$also]
                fn $law() {
                    super::$law::<$type>();
                }
            )*
        }
    };
}

macro_rules! on_accelerators {
    ($($law:ident)*) => {
        on_backend!(wgpu, "wgpu", burn::backend::Wgpu, cfg(all()), $($law)*);
        on_backend!(cuda, "cuda", burn::backend::Cuda,
            ignore = "needs a CUDA device; run with --include-ignored where there is one", $($law)*);
    };
}

macro_rules! on_every_backend {
    ($($law:ident)*) => {
        on_backend!(flex, "flex", burn::backend::Flex, cfg(all()), $($law)*);
        on_backend!(ndarray, "ndarray", burn::backend::NdArray, cfg(all()), $($law)*);
        on_backend!(candle, "candle", burn::backend::Candle, cfg(all()), $($law)*);
        on_accelerators!($($law)*);
    };
}

use {on_accelerators, on_backend, on_every_backend};
