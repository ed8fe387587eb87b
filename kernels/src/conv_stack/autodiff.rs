//! The stack under one and two levels of autodiff.
//!
//! The gradient of the stack is an operation of its own. Under a second level of autodiff its
//! backward pass is the pass along a direction: for a cotangent `u` of the gradients `G(x, p, g)` of
//! `<g, f(x, p)>`, the gradient of `<u, G>` is the tangent of `G` along `u` for the images and the
//! parameters, and the tangent of `f` along `u` for `g`.

use std::fmt;
use std::sync::Arc;

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::FloatTensor;

use super::fused::StackCall;
use super::host::vector;
use super::lanes::Tape;
use crate::door::FusedOps;
use crate::host::{HostBackend, elements, unwrap, wrap, write};
use crate::layers::FusedConvolution;

/// What the forward pass returns.
pub struct Forward<B: Backend> {
    /// `[n, c', h', w']`
    pub(super) features: FloatTensor<B>,
    /// The batch moments, untracked.
    pub(super) moments: FloatTensor<B>,
    /// What the gradient needs, if it was asked for.
    pub(super) tape: Option<Arc<Tape>>,
}

/// The stack and its gradient as operations of a backend.
pub trait StackOps: Backend {
    /// What the gradient takes besides the tape.
    type Kept: Clone + Send + 'static;

    /// What [`gradients`](Self::gradients) will take.
    fn keep(images: &FloatTensor<Self>, parameters: &FloatTensor<Self>) -> Self::Kept;

    /// The stack, with what its gradient needs where `keep` asks for it.
    fn forward(
        images: FloatTensor<Self>,
        parameters: FloatTensor<Self>,
        call: &StackCall,
        keep: bool,
    ) -> Forward<Self>;

    /// The gradients at a point that was kept, given that of the features, as one vector: of the
    /// parameters, then of the images if they are wanted.
    fn gradients(
        kept: Self::Kept,
        grad: FloatTensor<Self>,
        tape: &Arc<Tape>,
        images_wanted: bool,
    ) -> FloatTensor<Self>;
}

#[derive(Debug)]
struct ConvStack;

/// What the gradient of [`ConvStack`] takes besides that of its output.
#[derive(Clone)]
struct Point<B: StackOps> {
    kept: B::Kept,
    tape: Arc<Tape>,
}

impl<B: StackOps> fmt::Debug for Point<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Point").field("call", &self.tape.call).finish_non_exhaustive()
    }
}

impl<B: StackOps> Backward<B, 2> for ConvStack {
    type State = Point<B>;

    fn backward(self, ops: Ops<Point<B>, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [images, parameters] = ops.parents;
        let Point { kept, tape } = ops.state;
        let grad = grads.consume::<B>(&ops.node);
        let found = wrap::<B, 1>(B::gradients(kept, grad, &tape, images.is_some()));
        let length = tape.call.parameter_count();
        if let Some(node) = parameters {
            grads.register::<B>(node.id, unwrap(found.clone().narrow(0, 0, length)));
        }
        if let Some(node) = images {
            let shape = tape.call.images();
            let dx = found.narrow(0, length, shape.iter().product());
            grads.register::<B>(node.id, unwrap(dx.reshape(shape)));
        }
    }
}

fn forward<B: StackOps, C: CheckpointStrategy>(
    images: FloatTensor<Autodiff<B, C>>,
    parameters: FloatTensor<Autodiff<B, C>>,
    call: &StackCall,
    keep: bool,
) -> Forward<Autodiff<B, C>> {
    let nodes = [images.node.clone(), parameters.node.clone()];
    let (images, parameters) = (images.primitive, parameters.primitive);
    let prepared = Backward::<B, 2>::prepare::<C>(ConvStack, nodes).compute_bound().stateful();
    let (features, moments, tape) = match prepared {
        OpsKind::Tracked(prep) => {
            let kept = B::keep(&images, &parameters);
            let output = B::forward(images, parameters, call, true);
            let tape = output.tape.expect("kept, as asked");
            let point = Point { kept, tape: tape.clone() };
            (prep.finish(point, output.features), output.moments, Some(tape))
        }
        OpsKind::UnTracked(prep) => {
            let output = B::forward(images, parameters, call, keep);
            (prep.finish(output.features), output.moments, output.tape)
        }
    };
    let moments = <Autodiff<B, C> as AutodiffBackend>::from_inner(moments);
    Forward { features, moments, tape: tape.filter(|_| keep) }
}

impl<B: StackOps + FusedConvolution, C: CheckpointStrategy> FusedOps for Autodiff<B, C> {
    const ON_HOST: bool = true;

    fn conv_stack(
        images: FloatTensor<Self>,
        parameters: FloatTensor<Self>,
        call: &StackCall,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let Forward { features, moments, .. } = forward::<B, C>(images, parameters, call, false);
        (features, moments)
    }
}

#[derive(Debug)]
struct StackGradient;

/// What the gradient of [`StackGradient`] takes besides that of its output.
#[derive(Clone)]
struct Slope<B: Backend> {
    grad: FloatTensor<B>,
    tape: Arc<Tape>,
    /// Whether the output has the gradient of the images.
    images: bool,
}

impl<B: Backend> fmt::Debug for Slope<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slope").field("call", &self.tape.call).finish_non_exhaustive()
    }
}

impl<B: HostBackend> Backward<B, 3> for StackGradient {
    type State = Slope<B>;

    fn backward(self, ops: Ops<Slope<B>, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [images, parameters, grad] = ops.parents;
        let Slope { grad: dy, tape, images: moved } = ops.state;
        let direction = grads.consume::<B>(&ops.node);
        let device = B::float_device(&direction);
        let direction = elements::<B>(&direction);
        let (along, rest) = direction.split_at(tape.call.parameter_count());
        let (features, tangent) = tape.forward_along(moved.then_some(rest), along);
        if let Some(node) = grad {
            let features = write::<B, 4>(features, tape.call.features(), &device);
            grads.register::<B>(node.id, unwrap(features));
        }
        if images.is_none() && parameters.is_none() {
            return;
        }
        let dy = (&*elements::<B>(&dy), None);
        let found = tape.backward_along(&tangent, dy, images.is_some());
        if let (Some(node), Some(dx)) = (images, found.dx) {
            let dx = write::<B, 4>(dx, tape.call.images(), &device);
            grads.register::<B>(node.id, unwrap(dx));
        }
        if let Some(node) = parameters {
            grads.register::<B>(node.id, unwrap(vector::<B>(found.dparams, &device)));
        }
    }
}

impl<B: HostBackend, C: CheckpointStrategy> StackOps for Autodiff<B, C> {
    type Kept = [FloatTensor<Self>; 2];

    fn keep(images: &FloatTensor<Self>, parameters: &FloatTensor<Self>) -> Self::Kept {
        [images.clone(), parameters.clone()]
    }

    fn forward(
        images: FloatTensor<Self>,
        parameters: FloatTensor<Self>,
        call: &StackCall,
        keep: bool,
    ) -> Forward<Self> {
        forward::<B, C>(images, parameters, call, keep)
    }

    fn gradients(
        [images, parameters]: [FloatTensor<Self>; 2],
        grad: FloatTensor<Self>,
        tape: &Arc<Tape>,
        images_wanted: bool,
    ) -> FloatTensor<Self> {
        let nodes = [images.node.clone(), parameters.node.clone(), grad.node.clone()];
        let dy = grad.primitive;
        let found = <B as StackOps>::gradients((), dy.clone(), tape, images_wanted);
        match Backward::<B, 3>::prepare::<C>(StackGradient, nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                prep.finish(Slope { grad: dy, tape: tape.clone(), images: images_wanted }, found)
            }
            OpsKind::UnTracked(prep) => prep.finish(found),
        }
    }
}
