//! Batch normalisation in plain Burn operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::conv_stack::Moments;

/// Batch normalisation of `x` `[n, c, h, w]`; with the moments of the batch, detached, where no
/// `running` ones are given.
pub fn batch_norm<B: Backend>(
    x: Tensor<B, 4>,
    gamma: Option<Tensor<B, 1>>,
    beta: Option<Tensor<B, 1>>,
    running: Option<Moments<B>>,
    epsilon: f64,
) -> (Tensor<B, 4>, Option<Moments<B>>) {
    let channels = x.dims()[1];
    let per_channel = |vector: Tensor<B, 1>| vector.reshape([1, channels, 1, 1]);
    let (mean, variance, moments) = match running {
        Some(moments) => {
            let mean = per_channel(moments.mean.detach());
            (mean, per_channel(moments.variance.detach()), None)
        }
        None => {
            let mean = channel_mean(x.clone());
            let centred = x.clone() - mean.clone();
            let variance = channel_mean(centred.clone() * centred);
            let moments = Moments {
                mean: mean.clone().detach().reshape([channels]),
                variance: variance.clone().detach().reshape([channels]),
            };
            (mean, variance, Some(moments))
        }
    };
    let mut y = (x - mean) / (variance + epsilon).sqrt();
    if let Some(gamma) = gamma {
        y = y * per_channel(gamma);
    }
    if let Some(beta) = beta {
        y = y + per_channel(beta);
    }
    (y, moments)
}

fn channel_mean<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    x.mean_dim(0).mean_dim(2).mean_dim(3)
}
