//! Operations on the graph, by the closures that take gradients back.

use std::fmt;

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

/// A backward pass. Its closure is boxed: the compiler would otherwise have a copy of Burn's recording
/// for each operation.
struct Node<B: Backend, const N: usize>(Box<BackwardFn<B, N>>);

type BackwardFn<B, const N: usize> =
    dyn FnOnce(FloatTensor<B>, [bool; N]) -> [Option<FloatTensor<B>>; N] + Send;

impl<B: Backend, const N: usize> fmt::Debug for Node<B, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Node")
    }
}

impl<B: Backend, const N: usize> Backward<B, N> for Node<B, N> {
    type State = ();

    fn backward(self, ops: Ops<(), N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let gradients = self.0(gradient, ops.parents.each_ref().map(Option::is_some));
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

/// Records that `output` comes from `parents`: `backward` is given its gradient and which of the parents
/// want one, and gives what is added to theirs. It runs only if one wants one.
pub fn record<B: Backend, C: CheckpointStrategy, const N: usize>(
    parents: [&FloatTensor<Autodiff<B, C>>; N],
    output: FloatTensor<B>,
    backward: impl FnOnce(FloatTensor<B>, [bool; N]) -> [Option<FloatTensor<B>>; N] + Send + 'static,
) -> FloatTensor<Autodiff<B, C>> {
    let nodes = parents.map(|parent| parent.node.clone());
    Node(Box::new(backward)).prepare::<C>(nodes).compute_bound().stateless(output)
}

/// [`record`] of one parent, whose value `forward` may overwrite; that gives the output and the backward pass.
pub fn record_owned<B: Backend, C: CheckpointStrategy, F>(
    parent: FloatTensor<Autodiff<B, C>>,
    forward: impl FnOnce(FloatTensor<B>) -> (FloatTensor<B>, F),
) -> FloatTensor<Autodiff<B, C>>
where
    F: FnOnce(FloatTensor<B>) -> FloatTensor<B> + Send + 'static,
{
    let node = parent.node;
    let (output, backward) = forward(parent.primitive);
    let backward = Node::<B, 1>(Box::new(move |g, _| [Some(backward(g))]));
    backward.prepare::<C>([node]).compute_bound().stateless(output)
}
