//! Sums over channels and maps by channel, which normalisations are made of.
//!
//! Over maps `[n, c, h, w]` and vectors `[c]`:
//!
//! | primitive | result |
//! |---|---|
//! | `moments(x)` | mean and biased variance of every channel, `[2, c]` |
//! | `correlate(g, x, centre)` | sums of `g` and of `g * (x - centre)` over every channel, `[2, c]` |
//! | `affine(x, centre, scale, shift)` | `(x - centre) * scale + shift` |
//! | `combine([x, centre, scale], [x', centre', scale'])` | `(x - centre) * scale + (x' - centre') * scale'` |
//!
//! The derivatives of each are made of the others, so any number of them stays fused. Everything is
//! taken as a deviation from a centre, which is what keeps the digits of a small variance beside a
//! large mean.

pub(crate) mod cpu;
#[cfg(feature = "cube")]
#[allow(clippy::too_many_arguments, clippy::assign_op_pattern)]
pub(crate) mod cube;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use crate::host::wrap;

/// The two rows of what `moments` and `correlate` return, each `[c]`.
pub(crate) fn rows<B: Backend>(pair: FloatTensor<B>) -> [Tensor<B, 1>; 2] {
    let pair = wrap::<B, 2>(pair);
    let [_, channels] = pair.dims();
    [0, 1].map(|row| pair.clone().narrow(0, row, 1).reshape([channels]))
}

/// Elements of a map in each of its channels.
pub(crate) fn per_channel<B: Backend>(x: &FloatTensor<B>) -> usize {
    let [n, _, h, w] = wrap::<B, 4>(x.clone()).dims();
    n * h * w
}
