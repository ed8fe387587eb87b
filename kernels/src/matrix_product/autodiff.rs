//! Products on the graph: both gradients are products again.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::ops::FloatTensor;

use super::MatrixProduct;
use crate::layers::node::record;
use crate::registry::Runs;

impl<B: Runs<MatrixProduct>, C: CheckpointStrategy> Runs<MatrixProduct> for Autodiff<B, C> {
    fn run([left, right]: [FloatTensor<Self>; 2], call: &MatrixProduct) -> FloatTensor<Self> {
        let [l, r] = [&left, &right].map(|of| of.primitive.clone());
        let products = B::run([l.clone(), r.clone()], call);
        record::<B, C, 2>([&left, &right], products, |g, [of_left, of_right]| {
            let turned = |of| B::float_swap_dims(of, 1, 2);
            let by_left = of_left.then(|| B::run([g.clone(), turned(r)], &MatrixProduct));
            [by_left, of_right.then(|| B::run([turned(l), g], &MatrixProduct))]
        })
    }
}
