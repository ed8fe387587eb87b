//! Batch normalisation with the ReLU after it, and a 2x2 max-pool after that.
//!
//! By channel of a map `x` `[n, c, h, w]`, `v` is `(x - centre) * scale + shift`; `activate` gives
//! `z = relu(v)`, or `relu(max_pool(v))`. On a device neither `v` is written to memory, nor its
//! gradient, nor the places of a pool: forward and backward read and write 5.75 maps with a pool,
//! where the single layers take 12.75; a map whose channels are last, as a convolution leaves it, is
//! laid out anew besides, once each way. Under a second level of autodiff the gradient is made of the
//! single layers, and differentiated as they are.

pub(crate) mod composed;
#[cfg(feature = "cube")]
#[allow(clippy::too_many_arguments, clippy::assign_op_pattern)]
pub(crate) mod cube;
pub(crate) mod rectified;
pub mod reference;

pub use rectified::Rectified;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::batch_norm::{NormStatistics, normalise};
use crate::conv_stack::Moments;
use crate::max_pool;

/// `relu` of [`batch_norm`](crate::batch_norm()), of which `pool` takes the largest of every 2x2
/// window, and the moments of the batch, detached, unless given ones were used.
///
/// On an accelerator one operation, that writes nothing but its result. On a host made of
/// [`batch_norm`](crate::batch_norm()) and [`max_pool`](crate::max_pool()), whose maps are not kept for
/// the backward pass but made again.
///
/// # Shapes
/// - `x`: `[n, c, h, w]`
/// - output: as `x`, or `[n, c, h / 2, w / 2]` with a pool: an odd last row or column is dropped, after
///   it had its part in the moments
/// - `gamma` (one where absent), `beta` (zero where absent), moments: `[c]`
///
/// # Conventions
/// The same as those of [`batch_norm`](crate::batch_norm()) and [`max_pool`](crate::max_pool()). The ReLU has no
/// gradient at zero, and lets NaN through.
pub fn norm_relu<B: Backend>(
    x: Tensor<B, 4>,
    gamma: Option<Tensor<B, 1>>,
    beta: Option<Tensor<B, 1>>,
    statistics: NormStatistics<B>,
    epsilon: f64,
    pool: bool,
) -> (Tensor<B, 4>, Option<Moments<B>>) {
    if pool {
        max_pool::check(x.dims());
    }
    normalise("norm_relu", x, [gamma, beta], statistics, epsilon, Some(Rectified { pool }))
}
