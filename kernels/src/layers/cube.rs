//! Fused layers of every device backend.

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use super::FusedLayers;
use crate::channels::cube::{Grad, Input};
use crate::channels::{self, per_channel};
use crate::conv2d::{self, ConvShape, Role};
use crate::cube::into_contiguous;
use crate::global_avg_pool::cube as planes;
use crate::global_avg_pool::reference as average;
use crate::host::{unwrap, wrap};
use crate::max_pool::{self, Windows};
use crate::norm_relu::{self, Rectified};

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> FusedLayers
    for CubeBackend<R, F, I, BT>
{
    fn laid_out(x: FloatTensor<Self>) -> FloatTensor<Self> {
        into_contiguous(x)
    }

    fn pool_scatter(
        windows: Windows,
        x: FloatTensor<Self>,
        dy: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        max_pool::cube::scatter(windows, x, dy)
    }

    fn pool_gather(
        windows: Windows,
        x: FloatTensor<Self>,
        u: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        max_pool::cube::gather(windows, x, u)
    }

    fn plane_mean(x: FloatTensor<Self>, lanes: usize) -> FloatTensor<Self> {
        let [.., h, w] = x.shape().dims::<4>();
        match planes::takes([h, w]) {
            true => planes::mean(x, lanes),
            false => unwrap(average::global_avg_pool_lanes(wrap::<Self, 4>(x), lanes)),
        }
    }

    fn plane_spread(u: FloatTensor<Self>, size: [usize; 2]) -> FloatTensor<Self> {
        planes::spread(u, size)
    }

    fn channel_moments(x: FloatTensor<Self>) -> FloatTensor<Self> {
        channels::cube::moments(x)
    }

    fn channel_correlate([g, x, centre]: [FloatTensor<Self>; 3]) -> FloatTensor<Self> {
        let [x, centre] = [x, centre].map(into_contiguous);
        let parts = channels::cube::correlate(&Grad::new(g), &x, &[centre], [None, None]);
        channels::cube::total(parts)
    }

    fn channel_affine(x: FloatTensor<Self>, map: [FloatTensor<Self>; 3]) -> FloatTensor<Self> {
        let dtype = x.dtype;
        channels::cube::affine(&Input::new(x, map), false, dtype)
    }

    fn channel_combine([a, b]: [[FloatTensor<Self>; 3]; 2]) -> FloatTensor<Self> {
        channels::cube::combine(a, b)
    }

    fn activate(
        x: FloatTensor<Self>,
        map: [FloatTensor<Self>; 3],
        after: Rectified,
    ) -> FloatTensor<Self> {
        let dtype = x.dtype;
        norm_relu::cube::activate(&Input::new(x, map), after, dtype)
    }

    fn norm_backward(
        dz: FloatTensor<Self>,
        x: FloatTensor<Self>,
        map: [FloatTensor<Self>; 3],
        inverse: Option<FloatTensor<Self>>,
        after: Option<Rectified>,
        requires_grad: [bool; 2],
    ) -> [Option<FloatTensor<Self>>; 2] {
        let Some(after) = after else {
            return norm_relu::composed::backward::<Self>(
                dz,
                x,
                map,
                inverse,
                after,
                requires_grad,
            );
        };
        let (of, by) = (Input::new(x, map), Grad::new(dz));
        let [of_sums, of_x] = requires_grad;
        let parts = (of_sums || of_x && inverse.is_some())
            .then(|| norm_relu::cube::correlate(&of, &by, None, after));
        let (sums, moment_grad) = match (parts, inverse.map(into_contiguous)) {
            (Some(parts), Some(inverse)) => {
                let (norm, pixels) = ([&of.map[1], &inverse], per_channel::<Self>(&of.x));
                let gradients = norm_relu::cube::gradients(parts, norm, None, Some(pixels));
                (Some(gradients.sums), gradients.moment_grad)
            }
            (parts, _) => (parts.map(channels::cube::total), None),
        };
        let dx = of_x.then(|| norm_relu::cube::combine(&of, &by, moment_grad, after));
        [sums.filter(|_| of_sums), dx]
    }

    fn has_tf32(device: &R::Device) -> bool {
        conv2d::cube::has_tf32::<R>(device)
    }

    fn convolution(
        role: Role,
        operands: [FloatTensor<Self>; 2],
        shape: &ConvShape,
    ) -> FloatTensor<Self> {
        let dtype = operands[0].dtype;
        // So that an operand of another layout is freed once its copy is there.
        let operands = operands.map(into_contiguous);
        conv2d::cube::convolution(role, &[operands.each_ref()], shape, dtype)
    }
}
