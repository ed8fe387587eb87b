//! Fused layers of every device backend.
//!
//! Averages over planes stay Burn's own there: they are one operation each.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use super::{FusedConvolution, FusedLayers, goes_into_f32};
use crate::channels::{self, CentredScaled, per_channel};
use crate::conv2d::{self, ConvShape, Role};
use crate::fallback::FallbackReason;
use crate::host::{unwrap, wrap};
use crate::norm_relu::{self, Rectified};
use crate::{batch_norm, global_avg_pool, max_pool};

impl<R, F, I, BT> FusedLayers for CubeBackend<R, F, I, BT>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    fn takes(found: DType) -> bool {
        goes_into_f32(found)
    }

    fn laid_out(x: FloatTensor<Self>) -> FloatTensor<Self> {
        into_contiguous(x)
    }

    fn pool(x: FloatTensor<Self>) -> FloatTensor<Self> {
        max_pool::cube::pool(x)
    }

    fn pool_scatter(x: FloatTensor<Self>, dy: FloatTensor<Self>) -> FloatTensor<Self> {
        max_pool::cube::scatter(x, dy)
    }

    fn pool_gather(x: FloatTensor<Self>, u: FloatTensor<Self>) -> FloatTensor<Self> {
        max_pool::cube::gather(x, u)
    }

    fn plane_mean(x: FloatTensor<Self>) -> FloatTensor<Self> {
        unwrap(global_avg_pool::reference::global_avg_pool(wrap::<Self, 4>(x)))
    }

    fn plane_spread(u: FloatTensor<Self>, [h, w]: [usize; 2]) -> FloatTensor<Self> {
        let u: Tensor<Self, 2> = wrap(u);
        let [n, c] = u.dims();
        unwrap((u / (h * w) as f64).reshape([n, c, 1, 1]).expand([n, c, h, w]))
    }

    fn channel_moments(x: FloatTensor<Self>) -> FloatTensor<Self> {
        channels::cube::moments(x)
    }

    fn channel_correlate(
        g: FloatTensor<Self>,
        x: FloatTensor<Self>,
        centre: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        channels::cube::total(channels::cube::correlate(g, x, centre))
    }

    fn channel_affine(x: FloatTensor<Self>, map: [FloatTensor<Self>; 3]) -> FloatTensor<Self> {
        channels::cube::affine(x, map)
    }

    fn channel_combine(
        a: CentredScaled<FloatTensor<Self>>,
        b: CentredScaled<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        channels::cube::combine(a, b)
    }

    fn batch_norm(
        x: FloatTensor<Self>,
        affine: [FloatTensor<Self>; 2],
        epsilon: f64,
        after: Option<Rectified>,
    ) -> [FloatTensor<Self>; 2] {
        batch_norm::fused::normalise::<Self>(x, affine, epsilon, after)
    }

    fn activate(
        x: FloatTensor<Self>,
        map: [FloatTensor<Self>; 3],
        after: Rectified,
    ) -> FloatTensor<Self> {
        let dtype = x.dtype;
        norm_relu::cube::activate(x, map, after, dtype)
    }

    fn norm_backward(
        dz: FloatTensor<Self>,
        x: FloatTensor<Self>,
        map: [FloatTensor<Self>; 3],
        inverse: Option<FloatTensor<Self>>,
        after: Option<Rectified>,
        wanted: [bool; 2],
    ) -> [Option<FloatTensor<Self>>; 2] {
        let Some(after) = after else {
            return norm_relu::composed::backward::<Self>(dz, x, map, inverse, after, wanted);
        };
        // Once for both passes.
        let [dz, x] = [dz, x].map(into_contiguous);
        let [of_sums, of_x] = wanted;
        let sums = (of_sums || of_x && inverse.is_some())
            .then(|| norm_relu::cube::correlate(dz.clone(), x.clone(), map.clone(), after))
            .map(channels::cube::total);
        let dx = of_x.then(|| {
            let [_, scale, _] = map.clone();
            let of_batch = inverse.zip(sums.clone());
            let moment_grad = of_batch.map(|(inverse, sums)| {
                norm_relu::cube::moment_grad([scale, inverse, sums], per_channel::<Self>(&x))
            });
            norm_relu::cube::combine(dz, x, map, moment_grad, after)
        });
        [sums.filter(|_| of_sums), dx]
    }
}

impl<R, F, I, BT> FusedConvolution for CubeBackend<R, F, I, BT>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    fn serves(_: &ConvShape) -> Result<(), FallbackReason> {
        Ok(())
    }

    fn convolution(
        wanted: Role,
        operands: [FloatTensor<Self>; 2],
        shape: &ConvShape,
    ) -> FloatTensor<Self> {
        let dtype = operands[0].dtype;
        conv2d::cube::convolution(wanted, vec![operands], shape, dtype)
    }
}
