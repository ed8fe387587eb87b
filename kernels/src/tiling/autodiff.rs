//! Tiles and sums over lanes on the graph: each is the other's gradient.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::ops::FloatTensor;

use super::LaneCall;
use crate::list_gradients::{completed, inner, terms, where_wanted};
use crate::registry::Runs;
use crate::variadic_op::record;

impl<B: Runs<LaneCall>, C: CheckpointStrategy> Runs<LaneCall> for Autodiff<B, C> {
    fn run(xs: Vec<FloatTensor<Self>>, call: &LaneCall) -> Vec<FloatTensor<Self>> {
        let terms = terms::<B, C>(&xs);
        let results = B::run(inner::<B, C>(&xs), call);
        let transposed = LaneCall { over: call.over.transposed(), ..*call };
        record::<B, C>(&xs, results, move |gradients, requires_grad| {
            let back = |gradients| B::run(gradients, &transposed);
            completed(&terms, where_wanted::<B>(gradients, requires_grad, back), requires_grad)
        })
    }
}
