//! Largest values of rows, for heads that compare with the nearest neighbours.

use burn::tensor::backend::Backend;
use burn::tensor::{IndexingUpdateOp, Int, Tensor};

/// Places along the last axis of its `count` largest values, at least one, in falling order; of equal values the
/// first comes first.
pub(super) fn largest<B: Backend, const D: usize>(
    mut x: Tensor<B, D>,
    count: usize,
) -> Tensor<B, D, Int> {
    // A sort would order all of them.
    let last = D - 1;
    let mut places = Vec::with_capacity(count);
    for left in (0..count).rev() {
        let place = x.clone().argmax(last);
        if left > 0 {
            let below = Tensor::full(place.dims(), f32::NEG_INFINITY, (&x.device(), x.dtype()));
            x = x.scatter(last, place.clone(), below, IndexingUpdateOp::Add);
        }
        places.push(place);
    }
    Tensor::cat(places, last)
}
