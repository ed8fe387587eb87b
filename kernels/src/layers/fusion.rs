//! Layers recorded by Burn's fusion.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, TensorMetadata};
use burn_fusion::{Fusion, FusionBackend};

use super::FusedLayers;
use crate::conv2d::{ConvShape, Role};
use crate::fusion::{like, record, record_floats};
use crate::max_pool::Windows;
use crate::norm_relu::rectified::Rectified;

impl<B: FusionBackend + FusedLayers> FusedLayers for Fusion<B> {
    fn pool(windows: Windows, x: FloatTensor<Self>) -> FloatTensor<Self> {
        let output = (pooled(windows, &x), x.dtype());
        record_floats::<B, 1>("pool", [x], output, move |[x]| B::pool(windows, x))
    }

    fn pool_scatter(
        windows: Windows,
        x: FloatTensor<Self>,
        dy: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let output = like(&x);
        record_floats::<B, 2>("pool_scatter", [x, dy], output, move |[x, dy]| {
            B::pool_scatter(windows, x, dy)
        })
    }

    fn pool_gather(
        windows: Windows,
        x: FloatTensor<Self>,
        u: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let output = (pooled(windows, &x), x.dtype());
        record_floats::<B, 2>("pool_gather", [x, u], output, move |[x, u]| {
            B::pool_gather(windows, x, u)
        })
    }

    fn laid_out(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let output = like(&x);
        record_floats::<B, 1>("laid_out", [x], output, |[x]| B::laid_out(x))
    }

    fn channel_moments(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let output = by_channel(&x);
        record_floats::<B, 1>("channel_moments", [x], output, |[x]| B::channel_moments(x))
    }

    fn channel_correlate(of: [FloatTensor<Self>; 3]) -> FloatTensor<Self> {
        let output = by_channel(&of[1]);
        record_floats::<B, 3>("channel_correlate", of, output, |of| B::channel_correlate(of))
    }

    fn channel_affine(
        x: FloatTensor<Self>,
        [centre, scale, shift]: [FloatTensor<Self>; 3],
    ) -> FloatTensor<Self> {
        let output = like(&x);
        record_floats::<B, 4>(
            "channel_affine",
            [x, centre, scale, shift],
            output,
            |[x, map @ ..]| B::channel_affine(x, map),
        )
    }

    fn channel_combine([[x, centre, scale], b]: [[FloatTensor<Self>; 3]; 2]) -> FloatTensor<Self> {
        let (output, [other_x, other_centre, other_scale]) = (like(&x), b);
        let inputs = [x, centre, scale, other_x, other_centre, other_scale];
        record_floats::<B, 6>("channel_combine", inputs, output, |[x, centre, scale, b @ ..]| {
            B::channel_combine([[x, centre, scale], b])
        })
    }

    fn activate(
        x: FloatTensor<Self>,
        [centre, scale, shift]: [FloatTensor<Self>; 3],
        after: Rectified,
    ) -> FloatTensor<Self> {
        let output =
            (if after.pool { pooled(Windows::Adjacent, &x) } else { x.shape() }, x.dtype());
        let inputs = [x, centre, scale, shift];
        record_floats::<B, 4>("activate", inputs, output, move |[x, map @ ..]| {
            B::activate(x, map, after)
        })
    }

    fn norm_backward(
        dz: FloatTensor<Self>,
        x: FloatTensor<Self>,
        map: [FloatTensor<Self>; 3],
        inverse: Option<FloatTensor<Self>>,
        after: Option<Rectified>,
        requires_grad: [bool; 2],
    ) -> [Option<FloatTensor<Self>>; 2] {
        let outputs = [by_channel(&x), like(&x)].into_iter().zip(requires_grad);
        let outputs =
            outputs.filter_map(|(of, requires_grad)| requires_grad.then_some(of)).collect();
        let of_batch = inverse.is_some();
        let inputs = [dz, x].into_iter().chain(map).chain(inverse).collect();
        let results = record::<B, _>("norm_backward", inputs, outputs, move |given| {
            let [dz, x] = given.floats(0);
            let map = given.floats(2);
            let inverse = of_batch.then(|| given.float(5));
            let results = B::norm_backward(dz, x, map, inverse, after, requires_grad);
            results.into_iter().flatten().collect()
        });
        let mut results = results.into_iter();
        requires_grad.map(|requires_grad| {
            requires_grad.then(|| results.next().expect("as many as were recorded"))
        })
    }

    fn has_tf32(device: &Self::Device) -> bool {
        B::has_tf32(device)
    }

    fn convolution(
        role: Role,
        operands: [FloatTensor<Self>; 2],
        shape: &ConvShape,
    ) -> FloatTensor<Self> {
        let output = (Shape::from(shape.of(role)), operands[0].dtype());
        let shape = *shape;
        record_floats::<B, 2>("convolution", operands, output, move |operands| {
            B::convolution(role, operands, &shape)
        })
    }
}

fn pooled(windows: Windows, x: &impl TensorMetadata) -> Shape {
    let [n, c, h, w] = x.shape().dims();
    let [rows, columns] = windows.count([h, w]);
    Shape::new([n, c, rows, columns])
}

fn by_channel(x: &impl TensorMetadata) -> (Shape, DType) {
    let [_, c, _, _] = x.shape().dims();
    (Shape::new([2, c]), DType::F32)
}
