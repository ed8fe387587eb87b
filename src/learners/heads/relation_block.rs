use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{Moments, NormStatistics, norm_relu};
use fewshot_models::nn::RunningAverage;

const EPSILON: f64 = 1e-5;

/// Moments that a block normalises with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NormMoments {
    /// The running averages.
    Running,
    /// Moments of each task.
    Task,
    /// Moments of each task, towards whose mean the running averages move.
    TaskTracked,
}

/// Layers after a convolution of a relation network: batch-norm, ReLU and a pool.
#[derive(Module, Debug)]
pub struct RelationBlock<B: Backend> {
    /// Added to the convolution, `[o]`.
    pub bias: Param<Tensor<B, 1>>,
    /// Gain of the normalisation, `[o]`.
    pub gamma: Param<Tensor<B, 1>>,
    /// Shift of the normalisation, `[o]`.
    pub beta: Param<Tensor<B, 1>>,
    /// Running mean, `[o]`.
    pub running_mean: RunningAverage<B>,
    /// Running variance, `[o]`.
    pub running_var: RunningAverage<B>,
    momentum: f64,
}

impl<B: Backend> RelationBlock<B> {
    pub(super) fn new(channels: usize, momentum: f64, device: &B::Device) -> Self {
        let [zeros, ones] = [Tensor::zeros([channels], device), Tensor::ones([channels], device)];
        Self {
            bias: Param::from_tensor(zeros.clone()),
            gamma: Param::from_tensor(ones.clone()),
            beta: Param::from_tensor(zeros.clone()),
            running_mean: RunningAverage::new(zeros),
            running_var: RunningAverage::new(ones),
            momentum,
        }
    }

    /// Normalises and rectifies `maps` `[t, m, o, h, w]`, and takes the largest of every 2x2 window if
    /// they shall be `halved`.
    pub(super) fn rectified(
        &self,
        maps: Tensor<B, 5>,
        moments: NormMoments,
        halved: bool,
    ) -> Tensor<B, 5> {
        let [tasks, pairs, channels, height, width] = maps.dims();
        let [gamma, beta] = [&self.gamma, &self.beta].map(Param::val);
        if moments == NormMoments::Running {
            let running =
                Moments { mean: self.running_mean.value(), variance: self.running_var.value() };
            let flat = maps.reshape([tasks * pairs, channels, height, width]);
            let running = NormStatistics::Running(running);
            let (flat, _) = norm_relu(flat, Some(gamma), Some(beta), running, EPSILON, halved);
            let [_, _, height, width] = flat.dims();
            return flat.reshape([tasks, pairs, channels, height, width]);
        }
        // A task's channels are channels of their own, which have moments of their own.
        let folded = maps.swap_dims(0, 1).reshape([pairs, tasks * channels, height, width]);
        let [gamma, beta] = [gamma, beta].map(|vector| Some(vector.repeat_dim(0, tasks)));
        let batch = NormStatistics::Batch;
        let (folded, found) = norm_relu(folded, gamma, beta, batch, EPSILON, halved);
        if let Some(Moments { mean, variance }) = found
            && moments == NormMoments::TaskTracked
        {
            self.track(&self.running_mean, mean);
            self.track(&self.running_var, variance);
        }
        let [_, _, height, width] = folded.dims();
        folded.reshape([pairs, tasks, channels, height, width]).swap_dims(0, 1)
    }

    /// Moves a running average towards the mean over tasks of `moments` `[t * o]`.
    fn track(&self, average: &RunningAverage<B>, moments: Tensor<B, 1>) {
        let channels = average.value().dims()[0];
        let tasks = moments.dims()[0] / channels;
        let batch = moments.reshape([tasks, channels]).mean_dim(0).reshape([channels]);
        average.update(batch, self.momentum);
    }
}
