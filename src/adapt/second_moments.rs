use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_models::nn::RunningAverage;

use super::lists::summed_all;
use super::parameters::tiled;
use super::rule::Prior;
use super::{FastWeights, InnerRule};

/// The second moments of an inner Adam, which go on from one inner loop to the next: all tasks of a
/// batch begin with the same ones, and the mean of where they end is what the next batch begins with.
///
/// # Source
/// The authors' code of Nichol, Achiam and Schulman, "On First-Order Meta-Learning Algorithms", 2018,
/// where tasks come one after the other.
#[derive(Module, Debug)]
pub struct SecondMoments<B: Backend> {
    /// Averages from zero of the squared gradients of all adapted values, and last that of as many ones:
    /// `[values + 1]`.
    running_squares: RunningAverage<B>,
    /// Values of each adapted tensor.
    #[module(skip)]
    lengths: Vec<usize>,
    /// Decay of the moments in a step.
    #[module(skip)]
    decay: f64,
}

impl<B: Backend> SecondMoments<B> {
    /// Moments of a rule that has any, before the first step of adapted tensors with these lengths.
    pub(super) fn new(rule: InnerRule, lengths: Vec<usize>, device: &B::Device) -> Option<Self> {
        let InnerRule::Adam { beta_2, .. } = rule else { return None };
        let zeros = Tensor::zeros([lengths.iter().sum::<usize>() + 1], device);
        Some(Self { running_squares: RunningAverage::new(zeros), lengths, decay: beta_2 })
    }

    /// Moments that the adapted tensors begin with in each of `lanes` tasks.
    pub(super) fn priors(&self, lanes: usize) -> Arc<[Prior<B>]> {
        let all = self.running_squares.value();
        let weight = all.clone().narrow(0, self.lengths.iter().sum(), 1);
        let mut first = 0;
        let prior = |&length: &usize| {
            let moments = tiled(all.clone().narrow(0, first, length), lanes);
            first += length;
            Prior { moments, weight: weight.clone() }
        };
        self.lengths.iter().map(prior).collect()
    }

    /// Goes on by an inner loop of so many steps, at the end of which a task remembers `moments` in the
    /// mean.
    pub(super) fn update(&self, moments: Tensor<B, 1>, steps: usize) {
        let share = 1.0 - self.decay.powi(steps as i32);
        let one = Tensor::ones([1], (&moments.device(), moments.dtype()));
        self.running_squares.update(Tensor::cat(vec![moments / share, one], 0), share);
    }
}

impl<B: AutodiffBackend> SecondMoments<B> {
    /// The second moments that an inner loop remembers, summed over its `lanes` tasks, `[values]`.
    pub(super) fn summed(
        &self,
        fast: &FastWeights<B>,
        adapted: &[bool],
        lanes: usize,
    ) -> Tensor<B::InnerBackend, 1> {
        let memory = fast.memory.iter().zip(adapted).filter(|(_, adapted)| **adapted);
        let remembered = memory.map(|(memory, _)| memory.get(1).cloned().map(Tensor::inner));
        let summed = summed_all(remembered.collect(), lanes).into_iter().zip(&self.lengths);
        let average = self.running_squares.value();
        let each = summed.map(|(sum, &length)| match sum {
            Some(sum) => sum.cast(average.dtype()),
            // A tensor that no loss depends on has no gradient to remember.
            None => Tensor::zeros([length], (&average.device(), average.dtype())),
        });
        Tensor::cat(each.collect(), 0)
    }
}
