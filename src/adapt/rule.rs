use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use super::{AdaptError, Order, setting};

/// The direction that an inner step takes a parameter along, from its gradient `g`; the parameter
/// then loses rate times direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InnerRule {
    /// `g`.
    #[default]
    GradientDescent,
    /// `v <- momentum v + g`, from `v = g` at the first step.
    Momentum {
        /// Share of the last step that is kept.
        momentum: f64,
    },
    /// `m^ / (sqrt(v^ + epsilon_root) + epsilon)` with the corrected averages of `g` and `g^2`.
    ///
    /// # Conventions
    /// The derivative of a square root is infinite at zero, and a parameter whose gradient is zero
    /// would make the outer gradient NaN; `epsilon_root` keeps it finite, as in optax.
    ///
    /// # Source
    /// Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.
    Adam {
        /// Decay of the mean of gradients.
        beta_1: f64,
        /// Decay of the mean of squared gradients.
        beta_2: f64,
        /// Added to the root.
        epsilon: f64,
        /// Added under the root; may be 0 in first order alone.
        epsilon_root: f64,
    },
}

/// Adam's second moments before the first step of an inner loop.
#[derive(Clone, Debug)]
pub(super) struct Prior<B: Backend> {
    /// Their average, not corrected for its beginning at 0, `[n]`.
    pub(super) moments: Tensor<B, 1>,
    /// The sum of the weights of what was averaged, from 0 to 1, `[1]`.
    pub(super) weight: Tensor<B, 1>,
}

impl InnerRule {
    /// Adam without momentum, as in Reptile: for first order alone.
    pub const fn reptile() -> Self {
        Self::Adam { beta_1: 0.0, beta_2: 0.999, epsilon: 1e-8, epsilon_root: 0.0 }
    }

    pub(super) fn check(&self, order: Order) -> Result<(), AdaptError> {
        let within =
            |name, value| setting(name, "from 0 to below 1", value, (0.0..1.0).contains(&value));
        match *self {
            Self::GradientDescent => Ok(()),
            Self::Momentum { momentum } => within("momentum", momentum),
            Self::Adam { beta_1, beta_2, epsilon, epsilon_root: root } => {
                within("beta_1", beta_1)?;
                within("beta_2", beta_2)?;
                within("epsilon", epsilon)?;
                let expected = match order {
                    Order::First => "a positive number, or 0 beside a positive epsilon",
                    Order::Second => "a positive number",
                };
                let zero = order == Order::First && root == 0.0 && epsilon > 0.0;
                let positive = root.is_finite() && root > 0.0;
                setting("epsilon_root", expected, root, positive || zero)
            }
        }
    }

    /// The direction at step `step` (from 0), and what the next step remembers. Adam's second moments
    /// begin with `prior` if there is one; what is remembered leaves it out.
    pub(super) fn direction<B: Backend>(
        &self,
        step: usize,
        gradient: Tensor<B, 1>,
        memory: &[Tensor<B, 1>],
        prior: Option<&Prior<B>>,
    ) -> (Tensor<B, 1>, Vec<Tensor<B, 1>>) {
        match *self {
            Self::GradientDescent => (gradient, Vec::new()),
            Self::Momentum { momentum } => {
                let velocity = match memory {
                    [velocity] => velocity.clone() * momentum + gradient,
                    _ => gradient,
                };
                (velocity.clone(), vec![velocity])
            }
            Self::Adam { beta_1, beta_2, epsilon, epsilon_root } => {
                let average = |old: Option<&Tensor<B, 1>>, new: Tensor<B, 1>, beta: f64| {
                    let new = new * (1.0 - beta);
                    old.map_or_else(|| new.clone(), |old| old.clone() * beta + new.clone())
                };
                let square = gradient.clone() * gradient.clone();
                let mean = average(memory.first(), gradient, beta_1);
                let spread = average(memory.get(1), square, beta_2);
                let [decay_1, decay_2] = [beta_1, beta_2].map(|beta| beta.powi(step as i32 + 1));
                let corrected = match prior {
                    None => spread.clone() / (1.0 - decay_2),
                    Some(Prior { moments, weight }) => {
                        let [moments, weight] = [moments, weight]
                            .map(|prior| prior.clone().cast(spread.dtype()) * decay_2);
                        (spread.clone() + moments) / (weight + (1.0 - decay_2))
                    }
                };
                let root = (corrected + epsilon_root).sqrt() + epsilon;
                (mean.clone() / (1.0 - decay_1) / root, vec![mean, spread])
            }
        }
    }
}
