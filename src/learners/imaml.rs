use burn::tensor::backend::Backend;

use super::maml::Outer;
use super::{AdaptableNetwork, Maml};
use crate::adapt::{AdaptError, InnerLoop, Mask, Order, Proximal, RateKind};

impl<B: Backend, N: AdaptableNetwork<B>> Maml<B, N> {
    /// Implicit MAML: the inner loop minimises the support loss with a proximal term, and the outer
    /// gradient is that of the minimum, `(I + H / strength)^-1 v`, by conjugate gradients on
    /// products with the Hessian `H` of the support loss. The steps to the minimum leave no graph,
    /// so they may be many.
    ///
    /// All parameters adapt, whatever mask `inner` has.
    ///
    /// # Conventions
    /// The implicit gradient is that of a minimum, whatever steps led there, so nothing in training keeps
    /// the loss as flat as steps of a fixed length need it. The rate of a step of gradient descent is
    /// therefore at most `1 / L`, where `L` is how much the gradient changed along the last step. Where a
    /// few steps have not reached a minimum, `I + H / strength` need not be positive definite: conjugate
    /// gradients end where a direction curves down, and at twice the length of `v`. The authors' code
    /// differs in three places, and [`Proximal::damped`] does as it does.
    ///
    /// # Errors
    /// As [`Maml::new`], and when the strength is not positive or no iteration is made.
    ///
    /// # Source
    /// Rajeswaran, Finn, Kakade and Levine, "Meta-Learning with Implicit Gradients", NeurIPS 2019.
    pub fn implicit(network: N, inner: InnerLoop, proximal: Proximal) -> Result<Self, AdaptError> {
        proximal.check()?;
        let inner = inner.with_mask(Mask::All).with_order(Order::Second);
        let learner = Self::named("imaml", network, inner, RateKind::Fixed)?;
        Ok(learner.set(|settings| settings.outer = Outer::Implicit(proximal)))
    }
}
