use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Tensor};

use super::PlasticityError;
use super::error::at_least;

/// How much of a rule's change is made.
#[derive(Clone, Debug)]
pub enum Rate<B: Backend> {
    /// A number.
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

    /// Whether it changes nothing, ever.
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

    pub(super) fn times<const D: usize>(&self, tensor: Tensor<B, D>) -> Tensor<B, D> {
        match self {
            Self::Fixed(1.0) => tensor,
            Self::Fixed(rate) => tensor * *rate,
            Self::Learned(rate) => tensor * rate.clone().reshape([1; D]),
        }
    }
}

/// The rate from which a rule with Oja's forgetting may no longer settle on inputs like `x`,
/// `[b, inputs]`: `1 / E|x|^2`, below the bound `1 / lambda_1` by the largest eigenvalue of the
/// inputs' second moments.
///
/// Half of it is a good rate to begin with.
pub fn largest_rate<B: Backend>(x: Tensor<B, 2>) -> f64 {
    let examples = x.dims()[0] as f64;
    let power: f64 = (x.clone() * x).sum().into_scalar().elem();
    examples / power
}
