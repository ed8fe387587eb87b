//! Tiles and sums over lanes in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::{LaneCall, OverLanes};
use crate::host::{unwrap, wrap};
use crate::lists::has_elements;

/// `[n]` to `[lanes * n]`, or `[lanes * n]` to `[n]`.
///
/// Not by `repeat_dim`, which on Candle goes over all that there will be for every copy.
pub fn over_lanes<B: Backend>(
    x: FloatTensor<B>,
    LaneCall { lanes, over }: LaneCall,
) -> FloatTensor<B> {
    if !has_elements(&x) {
        return x;
    }
    let x: Tensor<B, 1> = wrap(x);
    let [length] = x.dims();
    unwrap(match over {
        OverLanes::Tiled => {
            x.reshape([1, length]).expand([lanes, length]).reshape([lanes * length])
        }
        OverLanes::Summed => {
            x.reshape([lanes, length / lanes]).sum_dim(0).reshape([length / lanes])
        }
    })
}
