use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Tensor};
use fewshot_kernels::Coefficient;

use super::PlasticityError;
use super::error::at_least;

/// Factor of a rule's change.
///
/// A number is checked where it is made, by [`Rate::fixed`]:
///
/// ```compile_fail
/// let rate = fewshot::plasticity::Rate::<burn::backend::Flex>::Fixed(f64::NAN);
/// ```
#[derive(Clone, Debug)]
pub enum Rate<B: Backend> {
    /// A number from zero on.
    #[non_exhaustive]
    Fixed(f64),
    /// A tensor `[1]`, through which gradients flow.
    Learned(Tensor<B, 1>),
}

impl<B: Backend> Rate<B> {
    /// A number from zero on; zero keeps weights as they are.
    ///
    /// # Errors
    /// When it is no such number.
    pub fn fixed(rate: f64) -> Result<Self, PlasticityError> {
        at_least("rate", 0.0, "a number from 0 on", rate).map(Self::Fixed)
    }

    /// True if the factor is the fixed number 0.
    pub fn is_zero(&self) -> bool {
        matches!(self, Self::Fixed(0.0))
    }

    /// The number; of a learned rate read from the device.
    pub fn value(&self) -> f64 {
        match self {
            Self::Fixed(rate) => *rate,
            Self::Learned(rate) => rate.clone().into_scalar().elem(),
        }
    }

    pub(super) fn coefficient(&self) -> Coefficient<Tensor<B, 1>> {
        match self {
            Self::Fixed(rate) => Coefficient::Number(*rate),
            Self::Learned(rate) => Coefficient::Tensor(rate.clone()),
        }
    }

    pub(super) fn times<const D: usize>(&self, tensor: Tensor<B, D>) -> Tensor<B, D> {
        match self {
            Self::Fixed(1.0) => tensor,
            Self::Fixed(rate) => tensor * *rate,
            Self::Learned(rate) => tensor * rate.clone().reshape([1; D]),
        }
    }
}

/// A rate that an optimizer can own, `exp(log)`, so that no step makes it negative.
///
/// A graph is for one backward pass: ask for the [`rate`](Self::rate) anew after each.
#[derive(Module, Debug)]
pub struct LearnedRate<B: Backend> {
    /// Natural logarithm of the rate, `[1]`.
    pub log: Param<Tensor<B, 1>>,
}

impl<B: Backend> LearnedRate<B> {
    /// With this rate to begin with.
    ///
    /// # Errors
    /// Unless it is a number from 1e-30 on.
    pub fn new(rate: f64, device: &B::Device) -> Result<Self, PlasticityError> {
        let rate = at_least("first rate", 1e-30, "a number from 1e-30 on", rate)?;
        Ok(Self { log: Param::from_tensor(Tensor::full([1], rate.ln(), device)) })
    }

    /// The rate, through which gradients flow to its logarithm.
    pub fn rate(&self) -> Rate<B> {
        Rate::Learned(self.log.val().exp())
    }
}

/// The rate from which a rule with Oja's decay may no longer settle on inputs like `x`,
/// `[b, inputs]`: `1 / E|x|^2`, below the bound `1 / lambda_1` by the largest eigenvalue of the
/// inputs' second moments.
///
/// Half of it is a good rate to begin with. Inputs of zeros have no bound, and it is infinite.
pub fn largest_rate<B: Backend>(x: Tensor<B, 2>) -> f64 {
    let examples = x.dims()[0] as f64;
    let power: f64 = (x.clone() * x).sum().into_scalar().elem();
    examples / power
}
