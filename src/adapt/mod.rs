//! Inner loops: a module adapted to a loss, differentiably where its backend differentiates.
//!
//! [`adapt`] works on any module and backend `B`: the inner gradient comes from a further level of
//! autodiff, `Autodiff<B>`, so on a plain backend it is fine-tuning, and on an autodiff backend the
//! result is a differentiable function of the module's parameters: exact second-order MAML.
//!
//! Learners use the same steps, differentiated by the graph of the whole loop or, with
//! [`SecondOrder::Chain`], step by step, in memory for the graph of one step. [`Segments`] does for the depth
//! of an encoder what the chain does for the length of a loop.

mod by_task;
mod curvature;
mod error;
mod implicit;
mod inner_loop;
mod level;
mod lists;
mod norms;
mod outer_gradient;
mod parameters;
mod rates;
mod rule;
mod secant;
mod second_moments;
mod segments;
mod steps;

pub use error::AdaptError;
pub use implicit::Proximal;
pub use inner_loop::{InnerLoop, Mask, Order, SecondOrder};
pub use level::{Lifted, lift};
pub use rates::{InnerRates, RateKind};
pub use rule::InnerRule;
pub use segments::Segments;

pub(crate) use error::setting;
pub(crate) use level::{differentiating_twice, lifted};
pub(crate) use lists::{scaled_all, summed_all, tiled_all};
pub(crate) use outer_gradient::{MetaGradient, OuterLoss, leaves, outer_gradient, sum};
pub(crate) use parameters::{filled, register, slots, stacked, tiled, values};
pub(crate) use secant::within_curvature;
pub(crate) use steps::{FastWeights, GradientFn, InnerSteps, flat_gradient_fn, lifted_gradient_fn};

use burn::backend::Autodiff;
use burn::module::{HasAutodiffModule, Module};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::precision::Precision;

/// `module` after the steps of `inner` on `loss`.
///
/// The adapted parameters are those that `inner` selects and that are not frozen. All else, such as
/// running averages, stays as it is. The loss is not scaled: for a module that computes in `f16`, put a
/// factor in the loss and its inverse in the rate, so that gradients do not underflow.
///
/// # Conventions
/// On an autodiff backend the result is on the graph of `module`, so that a loss of it can be
/// differentiated with respect to `module`'s parameters; under [`Order::First`] the inner gradients
/// are constants there. A plain backend does not know what is frozen: there a [`Mask`] selects what adapts.
///
/// # Errors
/// When `inner` makes no sense, or selects no parameter of `module`; on an autodiff backend,
/// whatever the order, also when `module` uses an operation whose gradient Burn cannot
/// differentiate: those of `burn::nn::Linear`, of Burn's two-dimensional pooling layers and of
/// embeddings. The layers of [`models`](crate::models) can be differentiated twice. Burn's
/// `MaxPool1d` is not detected: its second derivatives are silently wrong.
///
/// # Example
/// ```
/// use burn::backend::{Autodiff, Flex};
/// use burn::tensor::Tensor;
/// use fewshot::adapt::{InnerLoop, adapt};
/// use fewshot::models::nn::{Linear, LinearConfig};
///
/// type B = Autodiff<Flex>;
///
/// let device = Default::default();
/// let layer: Linear<B> = LinearConfig::new(2, 1).init(&device);
/// let x = Tensor::<Autodiff<B>, 2>::from_floats([[1.0, 2.0], [0.5, -1.0]], &device);
/// let adapted = adapt(
///     &layer,
///     |layer| layer.forward(x.clone()).powi_scalar(2).mean(),
///     &InnerLoop::new(3, 0.1),
/// )?;
///
/// let query = Tensor::<B, 2>::from_floats([[1.0, 1.0]], &device);
/// let gradients = adapted.forward(query).sum().backward();
/// assert!(layer.weight.val().grad(&gradients).is_some());
/// # Ok::<(), fewshot::adapt::AdaptError>(())
/// ```
///
/// # Source
/// Finn, Abbeel and Levine, "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks",
/// ICML 2017.
pub fn adapt<B, M>(
    module: &M,
    loss: impl Fn(&Lifted<B, M>) -> Tensor<Autodiff<B>, 1>,
    inner: &InnerLoop,
) -> Result<M, AdaptError>
where
    B: Backend,
    M: Module<B> + HasAutodiffModule<Autodiff<B>>,
{
    inner.check()?;
    let template = lift::<B, M>(module);
    let adapted_slots = inner.mask.select(&slots::<B, M>(module))?;
    let loss = |_: usize, module: &Lifted<B, M>| loss(module);
    let gradient_fn =
        lifted_gradient_fn::<B, Lifted<B, M>>(&template, &adapted_slots, Precision::F32, &loss);
    let steps = InnerSteps { inner, adapted: &adapted_slots, gradient_fn: &gradient_fn, lanes: 1 };
    let run = || steps.run(values::<B, M>(module), &InnerRates::fixed());
    let adapted = differentiating_twice::<B, M, _>(module, run)?;
    Ok(filled::<B, M>(module.clone(), &adapted.values))
}
