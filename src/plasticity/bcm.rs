use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::local_learning::{BcmForm, LocalRule, RuleKind};

use super::error::at_least;
use super::hebb::fixed_decay;
use super::rule::{mean_column, share};
use super::{PlasticityError, PlasticityRule, RuleState, WeightUpdate};

/// The rule of Bienenstock, Cooper and Munro, `dw_i = <phi(y_i, theta_i) x> - decay w_i`.
///
/// A neuron's threshold slides with its expected square, `theta_i <- theta_i + (<y_i^2> - theta_i)
/// / tau`: outputs below it depress, outputs above it potentiate, and neurons become selective for
/// one of several inputs. Thresholds must follow faster than weights move, `1 / tau` well above the
/// rate.
///
/// # Conventions
/// `phi = y (y - theta)` as Intrator and Cooper have it, unless [`BcmForm::Law`] is chosen. A batch
/// changes weights by the threshold before it, then updates the threshold.
///
/// # Source
/// Bienenstock, Cooper and Munro, "Theory for the development of neuron selectivity", Journal of
/// Neuroscience, 1982; Intrator and Cooper, "Objective function formulation of the BCM theory of
/// visual cortical plasticity", Neural Networks, 1992; Law and Cooper, "Formation of receptive
/// fields in realistic visual environments according to the Bienenstock, Cooper, and Munro (BCM)
/// theory", PNAS, 1994.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bcm {
    tau: f64,
    threshold: f64,
    decay: f64,
    form: BcmForm,
}

/// Least threshold that [`BcmForm::Law`] divides by.
const LEAST_DIVISOR: f64 = 1e-3;

impl Bcm {
    /// With thresholds that follow within about `tau` batches, from 1 on.
    ///
    /// # Errors
    /// Unless it is a number from one on.
    pub fn new(tau: f64) -> Result<Self, PlasticityError> {
        let tau = at_least("tau", 1.0, "a number from 1 on", tau)?;
        Ok(Self { tau, threshold: 1.0, decay: 0.0, form: BcmForm::default() })
    }

    /// With another threshold to begin with.
    ///
    /// # Errors
    /// Unless it is a number from 1e-30 on; smaller ones are zero in 32 bits.
    pub fn with_threshold(self, threshold: f64) -> Result<Self, PlasticityError> {
        let threshold = at_least("threshold", 1e-30, "a number from 1e-30 on", threshold)?;
        Ok(Self { threshold, ..self })
    }

    /// With a share of the weight forgotten at every batch, at a rate of 1.
    ///
    /// # Errors
    /// Unless it is a number from zero on.
    pub fn with_decay(self, decay: f64) -> Result<Self, PlasticityError> {
        let decay = at_least("decay", 0.0, "a number from 0 on", decay)?;
        Ok(Self { decay, ..self })
    }

    /// With another function of output and threshold.
    pub fn with_form(self, form: BcmForm) -> Self {
        Self { form, ..self }
    }
}

impl<B: Backend> PlasticityRule<B> for Bcm {
    fn init(&self, neurons: usize, _: usize, device: &B::Device) -> RuleState<B> {
        [None, Some(Tensor::full([1, neurons], self.threshold, device))]
    }

    fn kernel(&self) -> Option<LocalRule> {
        let Self { tau, decay, form, .. } = *self;
        Some(LocalRule { kind: RuleKind::Bcm(form), tau, decay })
    }

    fn change(
        &self,
        _: &Tensor<B, 2>,
        x: Tensor<B, 2>,
        y: Tensor<B, 2>,
        [_, threshold]: RuleState<B>,
    ) -> (WeightUpdate<B>, RuleState<B>) {
        let threshold = threshold.expect("a threshold for each neuron from the start");
        let above = y.clone() - threshold.clone();
        let phi = match self.form {
            BcmForm::IntratorCooper => above * y.clone(),
            BcmForm::Law => above * y.clone() / threshold.clone().clamp_min(LEAST_DIVISOR),
        };
        let decay = fixed_decay(self.decay);
        let change = WeightUpdate { post: share(phi), pre: x, decay };
        let square = mean_column(y.clone() * y).transpose();
        let threshold = threshold.clone() + (square - threshold) / self.tau;
        (change, [None, Some(threshold)])
    }
}
