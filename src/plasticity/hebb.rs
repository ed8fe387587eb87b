use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::local_learning::{LocalRule, RuleKind};

use super::error::at_least;
use super::rule::{mean_column, share};
use super::{Decay, PlasticityError, PlasticityRule, RuleState, WeightUpdate};

/// Hebb's rule, `dW = <y x^T> - decay W`.
///
/// Without decay a linear neuron grows without end: along an eigenvector of the inputs' second
/// moments with eigenvalue `l` by a factor of `1 + rate * l` a batch.
///
/// # Source
/// Hebb, "The Organization of Behavior", 1949; with decay Gerstner and Kistler, "Spiking Neuron
/// Models", 2002, section 10.2.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hebb {
    decay: f64,
}

impl Hebb {
    /// Without decay.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a share of the weight forgotten at every batch, at a rate of 1.
    ///
    /// # Errors
    /// Unless it is a number from zero on.
    pub fn with_decay(self, decay: f64) -> Result<Self, PlasticityError> {
        let decay = at_least("decay", 0.0, "a number from 0 on", decay)?;
        Ok(Self { decay })
    }
}

pub(super) fn fixed_decay<B: Backend>(decay: f64) -> Decay<B> {
    match decay {
        0.0 => Decay::None,
        decay => Decay::Same(decay),
    }
}

impl<B: Backend> PlasticityRule<B> for Hebb {
    fn kernel(&self) -> Option<LocalRule> {
        Some(LocalRule { kind: RuleKind::Hebb, tau: 1.0, decay: self.decay })
    }

    fn change(
        &self,
        _: &Tensor<B, 2>,
        x: Tensor<B, 2>,
        y: Tensor<B, 2>,
        state: RuleState<B>,
    ) -> (WeightUpdate<B>, RuleState<B>) {
        (WeightUpdate { post: share(y), pre: x, decay: fixed_decay(self.decay) }, state)
    }
}

/// Hebb's rule on deviations, `dW = <(y - E y) (x - E x)^T> - decay W`.
///
/// The expectations are running means of what came before, `E <- E + (mean - E) / tau`; the first
/// batch is its own expectation.
///
/// # Source
/// Sejnowski, "Storing covariance with nonlinearly interacting neurons", Journal of Mathematical
/// Biology, 1977.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Covariance {
    tau: f64,
    decay: f64,
}

impl Covariance {
    /// With means that follow within about `tau` batches.
    ///
    /// # Errors
    /// Unless it is a number from one on.
    pub fn new(tau: f64) -> Result<Self, PlasticityError> {
        Ok(Self { tau: at_least("tau", 1.0, "a number from 1 on", tau)?, decay: 0.0 })
    }

    /// With a share of the weight forgotten at every batch, at a rate of 1.
    ///
    /// # Errors
    /// Unless it is a number from zero on.
    pub fn with_decay(self, decay: f64) -> Result<Self, PlasticityError> {
        let decay = at_least("decay", 0.0, "a number from 0 on", decay)?;
        Ok(Self { decay, ..self })
    }

    fn follow<B: Backend>(&self, mean: Tensor<B, 2>, batch: Tensor<B, 2>) -> Tensor<B, 2> {
        mean.clone() + (batch - mean) / self.tau
    }
}

impl<B: Backend> PlasticityRule<B> for Covariance {
    fn kernel(&self) -> Option<LocalRule> {
        let Self { tau, decay } = *self;
        Some(LocalRule { kind: RuleKind::Covariance, tau, decay })
    }

    fn change(
        &self,
        _: &Tensor<B, 2>,
        x: Tensor<B, 2>,
        y: Tensor<B, 2>,
        [mean_x, mean_y]: RuleState<B>,
    ) -> (WeightUpdate<B>, RuleState<B>) {
        let row = |values: &Tensor<B, 2>| mean_column(values.clone()).transpose();
        let (now_x, now_y) = (row(&x), row(&y));
        let means = mean_x.zip(mean_y);
        let (mean_x, mean_y) = means.unwrap_or_else(|| (now_x.clone(), now_y.clone()));
        let change = WeightUpdate {
            post: share(y - mean_y.clone()),
            pre: x - mean_x.clone(),
            decay: fixed_decay(self.decay),
        };
        (change, [Some(self.follow(mean_x, now_x)), Some(self.follow(mean_y, now_y))])
    }
}
