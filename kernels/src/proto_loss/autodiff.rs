//! Scores and losses under one level of autodiff.
//!
//! The gradient is computed with the loss, where one is wanted at all: it costs two more matrix
//! products while the operands are in cache, and the backward pass then only scales it. Over a level
//! of autodiff below, it is made of plain operations, and so can be differentiated.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Tensor, activation};

use crate::distances::Metric;
use crate::host::{unwrap, wrap};
use crate::layers::node::{parents, record, register};
use crate::metrics::{FusedMetrics, LossCall};

#[derive(Debug)]
struct Scores;

impl<B: FusedMetrics> Backward<B, 2> for Scores {
    type State = (Metric, [FloatTensor<B>; 2]);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let of_parents = parents(&ops);
        let g = grads.consume::<B>(&ops.node);
        let (metric, of) = ops.state;
        let found = B::scores_gradients(metric, g, of);
        for (parent, gradient) in of_parents.into_iter().zip(found) {
            register::<B>(grads, parent, || gradient);
        }
    }
}

pub fn scores<B: FusedMetrics, C: CheckpointStrategy>(
    metric: Metric,
    queries: FloatTensor<Autodiff<B, C>>,
    prototypes: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let of = [queries.primitive.clone(), prototypes.primitive.clone()];
    let [on, to] = of.clone();
    let found = B::scores(metric, on, to);
    record::<B, C, 2, _>(Scores, [&queries, &prototypes], || (metric, of), found)
}

#[derive(Debug)]
struct Loss;

impl<B: FusedMetrics> Backward<B, 2> for Loss {
    /// The gradients by queries and by prototypes.
    type State = [FloatTensor<B>; 2];

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let of_parents = parents(&ops);
        let factor = grads.consume::<B>(&ops.node);
        for (parent, gradient) in of_parents.into_iter().zip(ops.state) {
            register::<B>(grads, parent, || B::scaled(gradient, factor.clone()));
        }
    }
}

/// The loss and what is not tracked.
pub fn loss<B: FusedMetrics, C: CheckpointStrategy>(
    call: LossCall,
    of: [FloatTensor<Autodiff<B, C>>; 2],
    labels: IntTensor<B>,
) -> [FloatTensor<Autodiff<B, C>>; 2] {
    let nodes = of.each_ref().map(|x| x.node.clone());
    let values = of.map(|x| x.primitive);
    let (loss, correct) = match Loss.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let [loss, correct, by_queries, by_prototypes] =
                B::proto_loss_gradients(call, values, labels);
            (prep.finish([by_queries, by_prototypes], loss), correct)
        }
        OpsKind::UnTracked(prep) => {
            let [loss, correct] = B::proto_loss(call, values, labels);
            (prep.finish(loss), correct)
        }
    };
    [loss, <Autodiff<B, C> as AutodiffBackend>::from_inner(correct)]
}

/// The softmax of the last dimension, whose derivative has no quotient: those of Burn's operations
/// multiply with a reciprocal, which is an estimate of 12 bits on NdArray.
#[derive(Debug)]
struct Softmax;

impl<B: FusedMetrics> Backward<B, 1> for Softmax {
    /// The output.
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [of_x] = parents(&ops);
        let g = wrap::<B, 3>(grads.consume::<B>(&ops.node));
        let likely = wrap::<B, 3>(ops.state);
        let mean = (g.clone() * likely.clone()).sum_dim(2);
        register::<B>(grads, of_x, || unwrap((g - mean) * likely));
    }
}

fn softmax<B: FusedMetrics, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let likely = unwrap(activation::softmax(wrap::<B, 3>(x.primitive.clone()), 2));
    let state = || likely.clone();
    record::<B, C, 1, _>(Softmax, [&x], state, likely.clone())
}

/// The loss and what is not tracked, and gradients that can be differentiated.
pub fn loss_gradients<B: FusedMetrics, C: CheckpointStrategy>(
    call: LossCall,
    of: [FloatTensor<Autodiff<B, C>>; 2],
    labels: IntTensor<B>,
) -> [FloatTensor<Autodiff<B, C>>; 4] {
    let [queries, prototypes] = of.clone().map(wrap::<Autodiff<B, C>, 3>);
    let classes = Tensor::from_primitive(labels.clone());
    let LossCall { metric, scale } = call;
    let softmax = |logits| wrap(softmax::<B, C>(unwrap(logits)));
    let gradients = super::reference::proto_loss_gradients(
        queries, prototypes, classes, metric, scale, softmax,
    );
    let [by_queries, by_prototypes] = gradients.map(unwrap);
    let [loss, correct] = loss::<B, C>(call, of, labels);
    [loss, correct, by_queries, by_prototypes]
}
