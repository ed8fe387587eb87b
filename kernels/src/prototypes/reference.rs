//! Class means in plain Burn operations.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};

use crate::linear::product;

/// The mean of the rows of each class, `[t, n, d]` to `[t, ways, d]`.
pub fn prototypes<B: Backend>(
    embeddings: Tensor<B, 3>,
    labels: Tensor<B, 2, Int>,
    ways: usize,
) -> Tensor<B, 3> {
    let [tasks, examples] = labels.dims();
    let shape = [tasks, ways, examples];
    let classes = Tensor::<B, 1, Int>::arange(0..ways as i64, &labels.device());
    let classes = classes.reshape([1, ways, 1]).expand(shape);
    let labels = labels.reshape([tasks, 1, examples]).expand(shape);
    let membership = classes.equal(labels).float().cast(embeddings.dtype());
    let counts = membership.clone().sum_dim(2);
    product(membership, embeddings) / counts
}
