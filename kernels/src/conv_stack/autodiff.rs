//! The stack under one level of autodiff.

use std::sync::Arc;

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;

use super::cpu::{self, Saved, StackShape};
use super::fused::{StackCall, forward};
use crate::door::FusedOps;
use crate::host::{HostBackend, read, unwrap, wrap, write};

#[derive(Debug)]
struct ConvStack;

#[derive(Clone)]
struct State {
    shape: StackShape,
    saved: Arc<Saved>,
    parameters: Arc<Vec<f32>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<B: HostBackend> Backward<B, 2> for ConvStack {
    type State = State;

    fn backward(self, ops: Ops<State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [images, parameters] = ops.parents;
        let State { shape, saved, parameters: values } = ops.state;
        let output = wrap::<B, 4>(grads.consume::<B>(&ops.node));
        let device = output.device();
        let dy = read(output);
        let found = cpu::backward(&shape, &saved, &values, &dy, images.is_some());
        if let (Some(node), Some(dx)) = (images, found.dx) {
            let dx = write::<B, 4>(dx, [shape.n, shape.c, shape.h, shape.w], &device);
            grads.register::<B>(node.id, unwrap(dx));
        }
        if let Some(node) = parameters {
            let length = found.dparams.len();
            let dparams = write::<B, 1>(found.dparams, [length], &device);
            grads.register::<B>(node.id, unwrap(dparams));
        }
    }
}

impl<B: HostBackend + FusedOps, C: CheckpointStrategy> FusedOps for Autodiff<B, C> {
    fn conv_stack(
        images: FloatTensor<Self>,
        parameters: FloatTensor<Self>,
        call: &StackCall,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let nodes = [images.node.clone(), parameters.node.clone()];
        let (features, moments) =
            match Backward::<B, 2>::prepare::<C>(ConvStack, nodes).compute_bound().stateful() {
                OpsKind::Tracked(prep) => {
                    let values = read(wrap::<B, 1>(parameters.primitive.clone()));
                    let (features, moments, saved) =
                        forward::<B>(images.primitive, parameters.primitive, call, true);
                    let state = State {
                        shape: call.shape.clone(),
                        saved: Arc::new(saved.expect("kept, as asked")),
                        parameters: Arc::new(values),
                    };
                    (prep.finish(state, features), moments)
                }
                OpsKind::UnTracked(prep) => {
                    let (features, moments) =
                        B::conv_stack(images.primitive, parameters.primitive, call);
                    (prep.finish(features), moments)
                }
            };
        (features, <Self as AutodiffBackend>::from_inner(moments))
    }
}
