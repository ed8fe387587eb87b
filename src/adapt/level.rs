//! The only place that names levels of autodiff.

use burn::backend::Autodiff;
use burn::module::{HasAutodiffModule, Module};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::nn::drawn;

/// A module one level of autodiff up.
pub type Lifted<B, M> = <M as HasAutodiffModule<Autodiff<B>>>::TrainModule;

/// `module` one level of autodiff up, its parameters leaves there unless they are frozen.
///
/// # Conventions
/// Lazily drawn parameters are drawn first: Burn would draw others for the copy. A parameter that
/// was adapted is no leaf of its own level, which Burn takes for frozen; its name is still
/// `module`'s, so whoever adapts decides from the module that it began with.
pub fn lift<B, M>(module: &M) -> Lifted<B, M>
where
    B: Backend,
    M: Module<B> + HasAutodiffModule<Autodiff<B>>,
{
    drawn::<B, M>(module.clone()).train::<Autodiff<B>>()
}

/// `tensor` one level of autodiff up, a constant there; it stays on the graph it is on.
pub(crate) fn lifted<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<Autodiff<B>, D> {
    Tensor::from_inner(tensor)
}
