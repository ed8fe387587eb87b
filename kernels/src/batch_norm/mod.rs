//! Batch normalisation.

pub(crate) mod fused;
pub mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};

use crate::channels::rows;
use crate::conv_stack::Moments;
use crate::host::{unwrap, wrap};
use crate::layers::{self, LayerTable, types, wide};
use crate::norm_relu::{self, Rectified};

/// The moments that [`batch_norm`] normalises with.
#[derive(Clone, Debug)]
pub enum NormStatistics<B: Backend> {
    /// The moments of the batch at hand.
    Batch,
    /// Given moments: no gradient flows into them, at the outermost level of autodiff.
    Running(Moments<B>),
}

/// `gamma * (x - mean) / sqrt(variance + epsilon) + beta` by channel, and the moments of the batch,
/// detached, unless given ones were used.
///
/// # Shapes
/// - `x` and output: `[n, c, h, w]`
/// - `gamma` (one where absent), `beta` (zero where absent), moments: `[c]`
///
/// # Conventions
/// The variance is the biased one, as in training in PyTorch
/// (`F.batch_norm(x, None, None, gamma, beta, training=True, eps=epsilon)`); its running average
/// there takes the unbiased one, here as in Burn the biased one. Of f16 and bf16, moments and all
/// arithmetic are f32, and the output is rounded once; of other types, and as plain operations, they
/// are of the type of `x`, which vectors may differ from.
pub fn batch_norm<B: Backend>(
    x: Tensor<B, 4>,
    gamma: Option<Tensor<B, 1>>,
    beta: Option<Tensor<B, 1>>,
    statistics: NormStatistics<B>,
    epsilon: f64,
) -> (Tensor<B, 4>, Option<Moments<B>>) {
    normalise("batch_norm", x, [gamma, beta], statistics, epsilon, None)
}

/// The `operation` of this name: a normalisation with what comes `after` it, whose shape fits.
pub(crate) fn normalise<B: Backend>(
    operation: &'static str,
    x: Tensor<B, 4>,
    [gamma, beta]: [Option<Tensor<B, 1>>; 2],
    statistics: NormStatistics<B>,
    epsilon: f64,
    after: Option<Rectified>,
) -> (Tensor<B, 4>, Option<Moments<B>>) {
    let (mean, variance) = match statistics {
        NormStatistics::Batch => (None, None),
        NormStatistics::Running(of) => (Some(of.mean), Some(of.variance)),
    };
    let vectors = [gamma, beta, mean, variance];
    check(x.dims(), &vectors);
    let of = x.dtype();
    let Some((table, taken)) = layers::table::<B>(operation, of, types(&vectors)) else {
        let [gamma, beta, mean, variance] =
            vectors.map(|vector| vector.map(|vector| vector.cast(of)));
        let running = mean.zip(variance).map(|(mean, variance)| Moments { mean, variance });
        return match after {
            Some(after) => norm_relu::reference::norm_relu(x, gamma, beta, running, epsilon, after),
            None => reference::batch_norm(x, gamma, beta, running, epsilon),
        };
    };
    let (y, moments) = run(table, x.cast(taken), wide(vectors), epsilon, after);
    (y.cast(of), moments)
}

fn run<B: Backend>(
    table: &LayerTable<B>,
    x: Tensor<B, 4>,
    [gamma, beta, mean, variance]: [Option<Tensor<B, 1>>; 4],
    epsilon: f64,
    after: Option<Rectified>,
) -> (Tensor<B, 4>, Option<Moments<B>>) {
    let (channels, options) = (x.dims()[1], (&x.device(), DType::F32));
    let gamma = gamma.unwrap_or_else(|| Tensor::ones([channels], options));
    let beta = beta.unwrap_or_else(|| Tensor::zeros([channels], options));
    if let Some((mean, variance)) = mean.zip(variance) {
        let scale = gamma * fused::inverse_deviation(variance.detach(), epsilon);
        let map = [mean.detach(), scale, beta].map(unwrap);
        let y = match after {
            Some(after) => (table.activate)(unwrap(x), map, after),
            None => (table.channel_affine)(unwrap(x), map),
        };
        return (wrap(y), None);
    }
    let [y, moments] = (table.batch_norm)(unwrap(x), [gamma, beta].map(unwrap), epsilon, after);
    let [mean, variance] = rows::<B>(moments).map(Tensor::detach);
    (wrap(y), Some(Moments { mean, variance }))
}

fn check<B: Backend>(shape: [usize; 4], vectors: &[Option<Tensor<B, 1>>; 4]) {
    assert!(
        !shape.contains(&0),
        "a normalisation needs images with pixels, found the shape {shape:?}"
    );
    let channels = shape[1];
    let names = ["gamma", "beta", "running mean", "running variance"];
    for (name, vector) in names.into_iter().zip(vectors) {
        let values = vector.as_ref().map_or(channels, |vector| vector.dims()[0]);
        assert!(
            values == channels,
            "a normalisation of {channels} channels needs as many values of {name}, found {values}"
        );
    }
}
