//! The update in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::Coefficient;
use crate::host::{unwrap, wrap};
use crate::linear::product;

/// See [`rank_update`](crate::rank_update()).
pub fn rank_update<B: Backend>(
    weight: FloatTensor<B>,
    decay: Coefficient<FloatTensor<B>>,
    [left, right]: [FloatTensor<B>; 2],
    rate: Coefficient<FloatTensor<B>>,
) -> FloatTensor<B> {
    let times = |tensor: Tensor<B, 2>| match &rate {
        Coefficient::Number(1.0) => tensor,
        Coefficient::Number(rate) => tensor * *rate,
        Coefficient::Tensor(rate) => tensor * wrap::<B, 1>(rate.clone()).reshape([1, 1]),
    };
    let weight: Tensor<B, 2> = wrap(weight);
    let retained = match (decay, &rate) {
        (Coefficient::Number(0.0), _) => weight,
        (Coefficient::Number(share), Coefficient::Number(rate)) => weight * (1.0 - rate * share),
        (Coefficient::Number(share), Coefficient::Tensor(rate)) => {
            let retention: Tensor<B, 1> = 1.0 - wrap(rate.clone()) * share;
            weight * retention.reshape([1, 1])
        }
        (Coefficient::Tensor(shares), _) => weight * (1.0 - times(wrap(shares))),
    };
    let left: Tensor<B, 2> = wrap(left);
    if left.dims()[0] == 0 {
        return unwrap(retained);
    }
    unwrap(retained + product(times(left).transpose(), wrap(right)))
}
