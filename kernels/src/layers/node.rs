//! What the autodiff nodes of the layers have in common.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::autodiff::{Autodiff, NodeId};
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

/// Records that `output` comes from `parents`, with the state its backward pass needs.
pub fn record<B: Backend, C: CheckpointStrategy, const N: usize, O: Backward<B, N>>(
    operation: O,
    parents: [&FloatTensor<Autodiff<B, C>>; N],
    state: impl FnOnce() -> O::State,
    output: FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let nodes = parents.map(|parent| parent.node.clone());
    match operation.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(state(), output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}

/// The parents that want a gradient.
pub fn parents<S, const N: usize>(operation: &Ops<S, N>) -> [Option<NodeId>; N] {
    operation.parents.each_ref().map(|parent| parent.as_ref().map(|node| node.id))
}

/// Adds to the gradient of a parent, if it wants one.
pub fn register<B: Backend>(
    gradients: &mut Gradients,
    parent: Option<NodeId>,
    gradient: impl FnOnce() -> FloatTensor<B>,
) {
    if let Some(parent) = parent {
        gradients.register::<B>(parent, gradient());
    }
}
