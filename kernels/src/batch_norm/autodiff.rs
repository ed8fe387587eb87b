//! Batch normalisation under one level of autodiff.
//!
//! With `s` and `p` the sums over a channel of `dy` and of `dy * (x - mean)`, `r` the inverse
//! deviation and `m` the number of pixels: `dbeta = s`, `dgamma = p r`, and
//! `dx = gamma r (dy - s / m) - gamma r^2 dgamma / m * (x - mean)`. One pass for the sums, one for
//! `dx`. Mean and deviation are functions of `x` on the level below, so this can be differentiated.
//!
//! With a ReLU and a pool after it, `dy` is what comes through these, and never written down.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;

use super::fused::inverse_deviation;
use crate::channels::rows;
use crate::host::{unwrap, wrap};
use crate::layers::FusedLayers;
use crate::layers::node::{parents, record, register};
use crate::norm_relu::Rectified;

#[derive(Debug)]
struct BatchNorm {
    after: Option<Rectified>,
}

#[derive(Clone, Debug)]
struct State<B: FusedLayers> {
    x: FloatTensor<B>,
    mean: Tensor<B, 1>,
    /// `1 / sqrt(variance + epsilon)`.
    inverse: Tensor<B, 1>,
    /// `gamma * inverse`.
    scale: Tensor<B, 1>,
    beta: FloatTensor<B>,
}

impl<B: FusedLayers> Backward<B, 3> for BatchNorm {
    type State = State<B>;

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [of_x, of_gamma, of_beta] = parents(&ops);
        let dy = grads.consume::<B>(&ops.node);
        let State { x, mean, inverse, scale, beta } = ops.state;
        let map = [unwrap(mean), unwrap(scale), beta];
        let of_batch = Some(unwrap(inverse.clone()));
        let wanted = [of_gamma.is_some() || of_beta.is_some(), of_x.is_some()];
        let [sums, dx] = B::norm_backward(dy, x, map, of_batch, self.after, wanted);
        register::<B>(grads, of_x, || dx.expect("it is wanted"));
        if wanted[0] {
            let [dbeta, product] = rows::<B>(sums.expect("they are wanted"));
            register::<B>(grads, of_gamma, || unwrap(product * inverse));
            register::<B>(grads, of_beta, || unwrap(dbeta));
        }
    }
}

pub fn normalise<B: FusedLayers, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    [gamma, beta]: [FloatTensor<Autodiff<B, C>>; 2],
    epsilon: f64,
    after: Option<Rectified>,
) -> [FloatTensor<Autodiff<B, C>>; 2] {
    let values = B::laid_out(x.primitive.clone());
    let moments = B::channel_moments(values.clone());
    let [mean, variance] = rows::<B>(moments.clone());
    let inverse = inverse_deviation(variance, epsilon);
    let scale = wrap(gamma.primitive.clone()) * inverse.clone();
    let map = [unwrap(mean.clone()), unwrap(scale.clone()), beta.primitive.clone()];
    let y = match after {
        Some(after) => B::activate(values.clone(), map, after),
        None => B::channel_affine(values.clone(), map),
    };
    let beta_values = beta.primitive.clone();
    let state = || State { x: values, mean, inverse, scale, beta: beta_values };
    let y = record::<B, C, 3, _>(BatchNorm { after }, [&x, &gamma, &beta], state, y);
    // Of both levels that are registered.
    [y, <Autodiff<B, C> as AutodiffBackend>::from_inner(B::float_detach(moments))]
}
