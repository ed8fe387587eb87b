//! The primitives under one level of autodiff, each differentiated by primitives of the level below.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::tensor::ops::FloatTensor;

use super::{CentredScaled, per_channel, rows};
use crate::host::{unwrap, wrap};
use crate::layers::FusedLayers;
use crate::layers::node::{parents, record, register};

#[derive(Debug)]
struct Moments;

impl<B: FusedLayers> Backward<B, 1> for Moments {
    /// The map and its moments.
    type State = [FloatTensor<B>; 2];

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [of_x] = parents(&ops);
        let [x, moments] = ops.state;
        let [mean, _] = rows::<B>(moments);
        let [by_mean, by_variance] = rows::<B>(grads.consume::<B>(&ops.node));
        let count = per_channel::<B>(&x) as f64;
        let map = [mean, by_variance * (2.0 / count), by_mean / count].map(unwrap);
        register::<B>(grads, of_x, || B::channel_affine(x, map));
    }
}

pub fn moments<B: FusedLayers, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let found = B::channel_moments(x.primitive.clone());
    let state = || [x.primitive.clone(), found.clone()];
    record::<B, C, 1, _>(Moments, [&x], state, found.clone())
}

#[derive(Debug)]
struct Correlate;

impl<B: FusedLayers> Backward<B, 3> for Correlate {
    /// `g`, `x`, the centre, and the sums.
    type State = [FloatTensor<B>; 4];

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [of_g, of_x, of_centre] = parents(&ops);
        let [g, x, centre, sums] = ops.state;
        let [by_sum, by_product] = rows::<B>(grads.consume::<B>(&ops.node));
        let map = [centre, unwrap(by_product.clone()), unwrap(by_sum)];
        register::<B>(grads, of_g, || B::channel_affine(x, map));
        register::<B>(grads, of_x, || scaled::<B>(g, unwrap(by_product.clone())));
        register::<B>(grads, of_centre, || {
            let [sum, _] = rows::<B>(sums);
            unwrap(-by_product * sum)
        });
    }
}

pub fn correlate<B: FusedLayers, C: CheckpointStrategy>(
    g: FloatTensor<Autodiff<B, C>>,
    x: FloatTensor<Autodiff<B, C>>,
    centre: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let of = [&g, &x, &centre].map(|tensor| tensor.primitive.clone());
    let [of_g, of_x, of_centre] = of.clone();
    let sums = B::channel_correlate(of_g, of_x, of_centre);
    let state = || {
        let [g, x, centre] = of;
        [g, x, centre, sums.clone()]
    };
    record::<B, C, 3, _>(Correlate, [&g, &x, &centre], state, sums.clone())
}

#[derive(Debug)]
struct Affine;

impl<B: FusedLayers> Backward<B, 4> for Affine {
    /// The map, the centre and the scale.
    type State = [FloatTensor<B>; 3];

    fn backward(self, ops: Ops<Self::State, 4>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [of_x, of_centre, of_scale, of_shift] = parents(&ops);
        let [x, centre, scale] = ops.state;
        let g = grads.consume::<B>(&ops.node);
        register::<B>(grads, of_x, || scaled::<B>(g.clone(), scale.clone()));
        if of_centre.is_none() && of_scale.is_none() && of_shift.is_none() {
            return;
        }
        let [sum, product] = rows::<B>(B::channel_correlate(g, x, centre));
        register::<B>(grads, of_centre, || unwrap(-wrap::<B, 1>(scale) * sum.clone()));
        register::<B>(grads, of_scale, || unwrap(product));
        register::<B>(grads, of_shift, || unwrap(sum));
    }
}

pub fn affine<B: FusedLayers, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    [centre, scale, shift]: [FloatTensor<Autodiff<B, C>>; 3],
) -> FloatTensor<Autodiff<B, C>> {
    let map = [&centre, &scale, &shift].map(|vector| vector.primitive.clone());
    let state = || [&x, &centre, &scale].map(|tensor| tensor.primitive.clone());
    let parents = [&x, &centre, &scale, &shift];
    let output = B::channel_affine(x.primitive.clone(), map);
    record::<B, C, 4, _>(Affine, parents, state, output)
}

#[derive(Debug)]
struct Combine;

impl<B: FusedLayers> Backward<B, 6> for Combine {
    type State = [CentredScaled<FloatTensor<B>>; 2];

    fn backward(self, ops: Ops<Self::State, 6>, grads: &mut Gradients, _: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        let parents = parents(&ops);
        for (tied, parents) in ops.state.into_iter().zip(parents.chunks_exact(3)) {
            register::<B>(grads, parents[0], || scaled::<B>(g.clone(), tied.scale.clone()));
            if parents[1].is_none() && parents[2].is_none() {
                continue;
            }
            let [sum, product] = rows::<B>(B::channel_correlate(g.clone(), tied.x, tied.centre));
            register::<B>(grads, parents[1], || unwrap(-wrap::<B, 1>(tied.scale) * sum));
            register::<B>(grads, parents[2], || unwrap(product));
        }
    }
}

pub fn combine<B: FusedLayers, C: CheckpointStrategy>(
    a: CentredScaled<FloatTensor<Autodiff<B, C>>>,
    b: CentredScaled<FloatTensor<Autodiff<B, C>>>,
) -> FloatTensor<Autodiff<B, C>> {
    let below = [&a, &b].map(|of| CentredScaled {
        x: of.x.primitive.clone(),
        centre: of.centre.primitive.clone(),
        scale: of.scale.primitive.clone(),
    });
    let parents = [&a.x, &a.centre, &a.scale, &b.x, &b.centre, &b.scale];
    let [of_a, of_b] = below.clone();
    record::<B, C, 6, _>(Combine, parents, || below, B::channel_combine(of_a, of_b))
}

/// `x * scale` by channel.
pub fn scaled<B: FusedLayers>(x: FloatTensor<B>, scale: FloatTensor<B>) -> FloatTensor<B> {
    let zero = unwrap(wrap::<B, 1>(scale.clone()).zeros_like());
    B::channel_affine(x, [zero.clone(), scale, zero])
}
