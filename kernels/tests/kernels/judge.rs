//! What results are judged by.

use burn::backend::{Autodiff, Flex};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// The reference on a backend that takes every shape judges all results.
pub type Judge = Autodiff<Flex>;

/// The elements. CubeCL refuses to read a tensor on CUDA that has none, so that no device is asked for one.
pub fn read<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    if tensor.dims().contains(&0) {
        return Vec::new();
    }
    tensor.into_data().into_vec().unwrap()
}

pub fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, value| most.max(value.abs()))
}

pub fn assert_close(what: &str, found: &[f32], expected: &[f32], bound: f32) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        assert!(error <= bound, "{what}[{index}] is {found}, not {expected} (within {bound:e})");
    }
}

/// What `run` gives, which is the same with one, two and three threads.
pub fn with_any_threads<R: PartialEq + Send>(what: &str, run: impl Fn() -> R + Sync) -> R {
    let [one, two, three] = [1, 2, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(&run)
    });
    assert!(one == two && one == three, "{what}");
    one
}
