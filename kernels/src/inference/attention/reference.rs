//! Attention in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;

/// The same as [`attention`](super::attention()), on any backend.
pub fn attention<B: Backend>(qkv: Tensor<B, 3>, heads: usize) -> Tensor<B, 3> {
    let [n, tokens, all] = qkv.dims();
    let each = all / (3 * heads);
    let qkv = qkv.reshape([n, tokens, 3 * heads, each]).swap_dims(1, 2);
    let part = |index| qkv.clone().narrow(1, index * heads, heads);
    let [q, k, v] = [part(0), part(1), part(2)];
    let scores = (q * (each as f64).powf(-0.5)).matmul(k.swap_dims(2, 3));
    softmax(scores, 3).matmul(v).swap_dims(1, 2).reshape([n, tokens, heads * each])
}
