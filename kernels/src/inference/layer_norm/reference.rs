//! The normalisation in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// The same as [`layer_norm`](super::layer_norm()), on any backend.
pub fn layer_norm<B: Backend>(
    x: Tensor<B, 2>,
    map: [Tensor<B, 1>; 2],
    epsilon: f64,
) -> Tensor<B, 2> {
    if x.dims().contains(&0) {
        return x;
    }
    let [gamma, beta] = map.map(|of| of.unsqueeze());
    let centred = x.clone() - x.mean_dim(1);
    let variance = (centred.clone() * centred.clone()).mean_dim(1);
    centred / (variance + epsilon).sqrt() * gamma + beta
}
