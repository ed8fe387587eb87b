//! The update in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::Kept;
use crate::host::{unwrap, wrap};

/// See [`rank_update`](crate::rank_update()).
pub fn rank_update<B: Backend>(
    weight: FloatTensor<B>,
    kept: Kept<FloatTensor<B>>,
    [left, right]: [FloatTensor<B>; 2],
) -> FloatTensor<B> {
    let growth = wrap::<B, 2>(left).transpose().matmul(wrap(right));
    let weight: Tensor<B, 2> = wrap(weight);
    let weight = match kept {
        Kept::Share(1.0) => weight,
        Kept::Share(share) => weight * share,
        Kept::Each(shares) => weight * wrap(shares),
    };
    unwrap(weight + growth)
}
