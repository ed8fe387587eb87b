use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::local_learning::{LocalRule, RuleKind};
use fewshot_kernels::product;

use super::rule::{mean_column, share};
use super::{Decay, PlasticityRule, RuleState, WeightUpdate};

/// Oja's rule for each neuron by itself, `dw_i = <y_i (x - y_i w_i)>`.
///
/// Every neuron's weight becomes the first principal component of the inputs, of length 1.
///
/// # Source
/// Oja, "A simplified neuron model as a principal component analyzer", Journal of Mathematical
/// Biology, 1982.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oja;

/// Oja's rule for a layer, `dW = <y (x - W^T y)^T>`.
///
/// The rows become an orthonormal basis of the space of the first principal components, not these
/// themselves; of as many inputs as neurons or fewer, `W^T W` becomes the identity.
///
/// # Source
/// Oja, "Neural networks, principal components, and subspaces", International Journal of Neural
/// Systems, 1989.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subspace;

/// The generalised Hebbian algorithm, `dW = <y x^T> - LT(<y y^T>) W`, with the lower triangle and
/// the diagonal.
///
/// Row `i` becomes the `i`-th principal component.
///
/// # Source
/// Sanger, "Optimal unsupervised learning in a single-layer linear feedforward neural network",
/// Neural Networks, 1989.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sanger;

impl<B: Backend> PlasticityRule<B> for Oja {
    fn kernel(&self) -> Option<LocalRule> {
        Some(LocalRule { kind: RuleKind::Oja, tau: 1.0, decay: 0.0 })
    }

    fn change(
        &self,
        _: &Tensor<B, 2>,
        x: Tensor<B, 2>,
        y: Tensor<B, 2>,
        state: RuleState<B>,
    ) -> (WeightUpdate<B>, RuleState<B>) {
        let power = mean_column(y.clone() * y.clone());
        (WeightUpdate { post: share(y), pre: x, decay: Decay::Each(power) }, state)
    }

    fn settles(&self) -> bool {
        true
    }
}

impl<B: Backend> PlasticityRule<B> for Subspace {
    fn kernel(&self) -> Option<LocalRule> {
        Some(LocalRule { kind: RuleKind::Subspace, tau: 1.0, decay: 0.0 })
    }

    fn change(
        &self,
        weight: &Tensor<B, 2>,
        x: Tensor<B, 2>,
        y: Tensor<B, 2>,
        state: RuleState<B>,
    ) -> (WeightUpdate<B>, RuleState<B>) {
        // What the outputs do not explain: two thin products in place of `<y y^T> W`.
        let pre = x - product(y.clone(), weight.clone());
        (WeightUpdate { post: share(y), pre, decay: Decay::None }, state)
    }

    fn settles(&self) -> bool {
        true
    }
}

impl<B: Backend> PlasticityRule<B> for Sanger {
    fn kernel(&self) -> Option<LocalRule> {
        Some(LocalRule { kind: RuleKind::Sanger, tau: 1.0, decay: 0.0 })
    }

    fn change(
        &self,
        _: &Tensor<B, 2>,
        x: Tensor<B, 2>,
        y: Tensor<B, 2>,
        state: RuleState<B>,
    ) -> (WeightUpdate<B>, RuleState<B>) {
        let post = share(y.clone());
        let lower = product(post.clone().transpose(), y).tril(0);
        (WeightUpdate { post, pre: x, decay: Decay::Between(lower) }, state)
    }

    fn settles(&self) -> bool {
        true
    }
}
