//! Fused layers under one level of autodiff, over any backend that has them.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::TensorMetadata;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;

use super::FusedLayers;
use super::node::{record, record_owned};
use crate::batch_norm::fused::{Normalised, normalised};
use crate::channels::{per_channel, rows};
use crate::conv2d::{ConvShape, Role};
use crate::host::{unwrap, wrap};
use crate::leaky_relu::rectifier::Rectifier;
use crate::max_pool::Windows;
use crate::norm_relu::composed::scaled;
use crate::norm_relu::rectified::Rectified;

impl<B: FusedLayers, C: CheckpointStrategy> FusedLayers for Autodiff<B, C> {
    // Which pixel of a window is taken does not change with a small change of `x`, so `x` only selects:
    // the gradient scatters, the gradient of that gathers, and so on.

    fn pool(windows: Windows, x: FloatTensor<Self>) -> FloatTensor<Self> {
        let of = x.primitive.clone();
        let pooled = B::pool(windows, of.clone());
        record::<B, C, 1>([&x], pooled, move |g, _| [Some(B::pool_scatter(windows, of, g))])
    }

    fn pool_scatter(
        windows: Windows,
        x: FloatTensor<Self>,
        dy: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let x = x.primitive;
        let dx = B::pool_scatter(windows, x.clone(), dy.primitive.clone());
        record::<B, C, 1>([&dy], dx, move |u, _| [Some(B::pool_gather(windows, x, u))])
    }

    fn pool_gather(
        windows: Windows,
        x: FloatTensor<Self>,
        u: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let x = x.primitive;
        let taken = B::pool_gather(windows, x.clone(), u.primitive.clone());
        record::<B, C, 1>([&u], taken, move |g, _| [Some(B::pool_scatter(windows, x, g))])
    }

    // The output selects, as a pool does: it tells the slope as its input would.

    fn leaky(x: FloatTensor<Self>, by: Rectifier) -> FloatTensor<Self> {
        record_owned::<B, C, _>(x, |x| {
            let z = B::leaky(x, by);
            (z.clone(), move |g| B::leaky_gate(z, g, by))
        })
    }

    fn leaky_gate(
        at: FloatTensor<Self>,
        values: FloatTensor<Self>,
        by: Rectifier,
    ) -> FloatTensor<Self> {
        let at = at.primitive;
        record_owned::<B, C, _>(values, |values| {
            let gated = B::leaky_gate(at.clone(), values, by);
            (gated, move |g| B::leaky_gate(at, g, by))
        })
    }

    // Two linear maps, each the transpose of the other.

    fn plane_mean(x: FloatTensor<Self>, lanes: usize) -> FloatTensor<Self> {
        let [_, _, h, w] = x.shape().dims();
        let mean = B::plane_mean(x.primitive.clone(), lanes);
        record::<B, C, 1>([&x], mean, move |g, _| [Some(B::plane_spread(g, [h, w]))])
    }

    fn plane_spread(u: FloatTensor<Self>, size: [usize; 2]) -> FloatTensor<Self> {
        let [lanes, ..] = u.shape().dims::<3>();
        let spread = B::plane_spread(u.primitive.clone(), size);
        record::<B, C, 1>([&u], spread, move |g, _| [Some(B::plane_mean(g, lanes))])
    }

    fn channel_moments(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let moments = B::channel_moments(x.primitive.clone());
        let (of, result) = (x.primitive.clone(), moments.clone());
        record::<B, C, 1>([&x], result, |g, _| {
            let [mean, _] = rows::<B>(moments);
            let [by_mean, by_variance] = rows::<B>(g);
            let count = per_channel::<B>(&of) as f64;
            let map = [mean, by_variance * (2.0 / count), by_mean / count].map(unwrap);
            [Some(B::channel_affine(of, map))]
        })
    }

    fn channel_correlate(of: [FloatTensor<Self>; 3]) -> FloatTensor<Self> {
        let parents = of.each_ref();
        let of = parents.map(|tensor| tensor.primitive.clone());
        let sums = B::channel_correlate(of.clone());
        let result = sums.clone();
        record::<B, C, 3>(parents, result, |by, [of_g, of_x, of_centre]| {
            let [g, x, centre] = of;
            let [by_sum, by_product] = rows::<B>(by);
            let map = [centre, unwrap(by_product.clone()), unwrap(by_sum)];
            let dg = of_g.then(|| B::channel_affine(x, map));
            let dx = of_x.then(|| scaled::<B>(g, unwrap(by_product.clone())));
            let d_centre = of_centre.then(|| {
                let [sum, _] = rows::<B>(sums);
                unwrap(-by_product * sum)
            });
            [dg, dx, d_centre]
        })
    }

    fn channel_affine(x: FloatTensor<Self>, map: [FloatTensor<Self>; 3]) -> FloatTensor<Self> {
        let [centre, scale, shift] = &map;
        let parents = [&x, centre, scale, shift];
        let [x, centre, scale, shift] = parents.map(|tensor| tensor.primitive.clone());
        let y = B::channel_affine(x.clone(), [centre.clone(), scale.clone(), shift]);
        record::<B, C, 4>(parents, y, |g, [of_x, of_map @ ..]| {
            let dx = of_x.then(|| scaled::<B>(g.clone(), scale.clone()));
            let sums = || B::channel_correlate([g, x, centre]);
            let [d_centre, d_scale, d_shift] = map_gradients::<B>(sums, scale, of_map);
            [dx, d_centre, d_scale, d_shift]
        })
    }

    fn channel_combine([a, b]: [[FloatTensor<Self>; 3]; 2]) -> FloatTensor<Self> {
        let below = [&a, &b].map(|of| of.each_ref().map(|tensor| tensor.primitive.clone()));
        let parents = [&a[0], &a[1], &a[2], &b[0], &b[1], &b[2]];
        let y = B::channel_combine(below.clone());
        record::<B, C, 6>(parents, y, |g, requires_grad| {
            let [of_a, of_b] = below;
            let gradients = [(of_a, 0), (of_b, 3)].map(|([x, centre, scale], first)| {
                let dx = requires_grad[first].then(|| scaled::<B>(g.clone(), scale.clone()));
                let sums = || B::channel_correlate([g.clone(), x, centre]);
                let of_map = [requires_grad[first + 1], requires_grad[first + 2], false];
                let [d_centre, d_scale, _] = map_gradients::<B>(sums, scale, of_map);
                [dx, d_centre, d_scale]
            });
            let [[x, centre, scale], [other_x, other_centre, other_scale]] = gradients;
            [x, centre, scale, other_x, other_centre, other_scale]
        })
    }

    /// With `s` and `p` the sums over a channel of `dy` and of `dy * (x - mean)`, `r` the inverse
    /// deviation and `m` the number of pixels: `dbeta = s`, `dgamma = p r`, and
    /// `dx = gamma r (dy - s / m) - gamma r^2 dgamma / m * (x - mean)`. One pass for the sums, one for
    /// `dx`. Mean and deviation are functions of `x` on the level below, so this can be differentiated.
    ///
    /// With a ReLU and a pool after it, `dy` is what comes through these, and never written down.
    fn batch_norm(
        x: FloatTensor<Self>,
        [gamma, beta]: [FloatTensor<Self>; 2],
        epsilon: f64,
        after: Option<Rectified>,
    ) -> [FloatTensor<Self>; 2] {
        let values = B::laid_out(x.primitive.clone());
        let affine = [gamma.primitive.clone(), beta.primitive.clone()];
        let Normalised { y, moments, map, inverse } =
            normalised::<B>(values.clone(), affine, epsilon, after);
        let y = record::<B, C, 3>([&x, &gamma, &beta], y, move |dy, [of_x, of_gamma, of_beta]| {
            let of_batch = Some(unwrap(inverse.clone()));
            let requires_grad = [of_gamma || of_beta, of_x];
            let [sums, dx] = B::norm_backward(dy, values, map, of_batch, after, requires_grad);
            let Some([dbeta, product]) = sums.map(rows::<B>) else { return [dx, None, None] };
            let dgamma = of_gamma.then(|| unwrap(product * inverse));
            [dx, dgamma, of_beta.then(|| unwrap(dbeta))]
        });
        // Of both levels that are registered.
        [y, <Self as AutodiffBackend>::from_inner(B::float_detach(moments))]
    }

    fn activate(
        x: FloatTensor<Self>,
        map: [FloatTensor<Self>; 3],
        after: Rectified,
    ) -> FloatTensor<Self> {
        let values = B::laid_out(x.primitive.clone());
        let [centre, scale, shift] = &map;
        let parents = [&x, centre, scale, shift];
        let map = [centre, scale, shift].map(|vector| vector.primitive.clone());
        let z = B::activate(values.clone(), map.clone(), after);
        record::<B, C, 4>(parents, z, move |dz, [of_x, of_map @ ..]| {
            let scale = map[1].clone();
            let requires_grad = [of_map.contains(&true), of_x];
            let [sums, dx] = B::norm_backward(dz, values, map, None, Some(after), requires_grad);
            let sums = || sums.expect("a gradient of the map is required");
            let [d_centre, d_scale, d_shift] = map_gradients::<B>(sums, scale, of_map);
            [dx, d_centre, d_scale, d_shift]
        })
    }

    // `<dy, conv(x, w)>` is linear in each of its three operands. The derivative by one operand is a
    // form in the other two, and its derivatives are again of that kind: with the gradient `g` in the
    // place of the operand that was derived by, `dw` of `<dy, conv(g, w)>` and so on.

    fn has_tf32(device: &Self::Device) -> bool {
        B::has_tf32(device)
    }

    fn convolution(role: Role, of: [FloatTensor<Self>; 2], shape: &ConvShape) -> FloatTensor<Self> {
        let parents = of.each_ref();
        let [first, second] = parents.map(|tensor| tensor.primitive.clone());
        let output = B::convolution(role, [first.clone(), second.clone()], shape);
        let (shape, next) = (*shape, role.next());
        record::<B, C, 2>(parents, output, move |g, [of_first, of_second]| {
            let by_first = of_first.then(|| B::convolution(next, [second, g.clone()], &shape));
            let by_second = of_second.then(|| B::convolution(next.next(), [g, first], &shape));
            [by_first, by_second]
        })
    }
}

/// The gradients of centre, scale and shift, of the sums by channel of the gradient of what they map to.
fn map_gradients<B: FusedLayers>(
    sums: impl FnOnce() -> FloatTensor<B>,
    scale: FloatTensor<B>,
    requires_grad @ [of_centre, of_scale, of_shift]: [bool; 3],
) -> [Option<FloatTensor<B>>; 3] {
    if !requires_grad.contains(&true) {
        return [None, None, None];
    }
    let [sum, product] = rows::<B>(sums());
    [
        of_centre.then(|| unwrap(-wrap::<B, 1>(scale) * sum.clone())),
        of_scale.then(|| unwrap(product)),
        of_shift.then(|| unwrap(sum)),
    ]
}
