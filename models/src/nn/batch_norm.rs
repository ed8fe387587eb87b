use burn::config::Config;
use burn::module::{Initializer, Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{Moments, NormStatistics, Route, batch_norm, route};
use serde::{Deserialize, Serialize};

use super::RunningAverage;

/// The moments that batch normalisation uses.
///
/// An explicit choice at every call, because results depend on it: with batch statistics at test
/// time the queries inform each other, which makes the test transductive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BnStatistics {
    /// Moments of the batch, by which running averages are updated: training.
    Track,
    /// Moments of the batch; running averages stay as they are.
    Batch,
    /// Running averages gathered in training.
    #[default]
    Running,
}

/// Configuration of a [`BatchNorm`] layer.
#[derive(Config, Debug)]
pub struct BatchNormConfig {
    /// Number of channels.
    pub num_features: usize,
    /// Term added to the variance.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Share of the new batch in a running average.
    #[config(default = 0.1)]
    pub momentum: f64,
}

/// Batch normalisation with the record of `burn::nn::BatchNorm`, for which each call chooses the moments.
///
/// # Conventions
/// Burn's layer uses batch statistics whenever its backend differentiates and running ones
/// otherwise; this one uses those of the call. Running variances are averages of the biased variance, as
/// in Burn; PyTorch averages the unbiased one.
///
/// # Source
/// Ioffe and Szegedy, "Batch Normalization", ICML 2015.
#[derive(Module, Debug)]
pub struct BatchNorm<B: Backend> {
    /// Gain, `[c]`.
    pub gamma: Param<Tensor<B, 1>>,
    /// Shift, `[c]`.
    pub beta: Param<Tensor<B, 1>>,
    /// Running mean, `[c]`.
    pub running_mean: RunningAverage<B>,
    /// Running variance, `[c]`.
    pub running_var: RunningAverage<B>,
    /// Share of the new batch in a running average.
    pub momentum: f64,
    /// Term added to the variance.
    pub epsilon: f64,
}

/// Names of running averages, which a module visits as it visits parameters: those of
/// [`BatchNorm`] and Burn's own, and of squared gradients in an inner loop.
pub const RUNNING_AVERAGES: [&str; 3] = ["running_mean", "running_var", "running_squares"];

impl BatchNormConfig {
    /// Gain one, shift zero, running mean zero, running variance one.
    pub fn init<B: Backend>(&self, device: &B::Device) -> BatchNorm<B> {
        BatchNorm {
            gamma: Initializer::Ones.init([self.num_features], device),
            beta: Initializer::Zeros.init([self.num_features], device),
            running_mean: RunningAverage::new(Tensor::zeros([self.num_features], device)),
            running_var: RunningAverage::new(Tensor::ones([self.num_features], device)),
            momentum: self.momentum,
            epsilon: self.epsilon,
        }
    }
}

impl<B: Backend> BatchNorm<B> {
    /// Normalises `x` `[n, c, h, w]` by channel.
    pub fn forward(&self, x: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 4> {
        let running = match statistics {
            BnStatistics::Running => NormStatistics::Running(self.running()),
            BnStatistics::Batch | BnStatistics::Track => NormStatistics::Batch,
        };
        let (gamma, beta) = (Some(self.gamma.val()), Some(self.beta.val()));
        let (y, moments) = batch_norm(x, gamma, beta, running, self.epsilon);
        if let (BnStatistics::Track, Some(moments)) = (statistics, moments) {
            self.track(moments);
        }
        y
    }

    /// The running averages.
    pub fn running(&self) -> Moments<B> {
        Moments { mean: self.running_mean.value(), variance: self.running_var.value() }
    }

    /// Scale and shift of each channel in normalisation by running averages, both `[c]`.
    pub(crate) fn running_map(&self) -> [Tensor<B, 1>; 2] {
        let Moments { mean, variance } = self.running();
        let scale = self.gamma.val() / (variance + self.epsilon).sqrt();
        let shift = self.beta.val() - mean * scale.clone();
        [scale, shift]
    }

    /// Updates the running averages by the moments of `batch`.
    pub fn track(&self, batch: Moments<B>) {
        self.running_mean.update(batch.mean, self.momentum);
        self.running_var.update(batch.variance, self.momentum);
    }
}

/// Updates the running averages of every norm by the moments of its batch: on an accelerator all of them
/// at once.
pub(crate) fn track_all<'a, B: Backend>(
    norms: impl Iterator<Item = &'a BatchNorm<B>>,
    batches: Vec<Moments<B>>,
) {
    let each: Vec<_> = norms.zip(batches).collect();
    let momentum = each.first().map_or(0.0, |(norm, _)| norm.momentum);
    let alike = each.iter().all(|(norm, _)| norm.momentum == momentum);
    if !alike || !matches!(route::<B>(), Route::Device(_)) {
        each.into_iter().for_each(|(norm, batch)| norm.track(batch));
        return;
    }
    let (averages, targets): (Vec<_>, Vec<_>) = each
        .into_iter()
        .flat_map(|(norm, Moments { mean, variance })| {
            [(&norm.running_mean, mean), (&norm.running_var, variance)]
        })
        .unzip();
    RunningAverage::update_all(&averages, targets, momentum);
}
