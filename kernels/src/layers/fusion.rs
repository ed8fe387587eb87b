//! Layers recorded by Burn's fusion.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, Tensor, TensorMetadata};
use burn_fusion::{Fusion, FusionBackend};

use super::{FusedConvolution, FusedLayers};
use crate::channels::CentredScaled;
use crate::conv2d::{ConvShape, Role};
use crate::fallback::FallbackReason;
use crate::fusion::{record, record_one};
use crate::host::{unwrap, wrap};
use crate::norm_relu::Rectified;
use crate::{batch_norm, global_avg_pool};

impl<B: FusionBackend + FusedLayers> FusedLayers for Fusion<B> {
    fn takes(found: DType) -> bool {
        B::takes(found)
    }

    fn pool(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let output = (pooled(&x), x.dtype());
        record_one::<B, _>("pool", vec![x], output, |given| B::pool(given.float(0)))
    }

    fn pool_scatter(x: FloatTensor<Self>, dy: FloatTensor<Self>) -> FloatTensor<Self> {
        let output = (x.shape(), x.dtype());
        record_one::<B, _>("pool_scatter", vec![x, dy], output, |given| {
            B::pool_scatter(given.float(0), given.float(1))
        })
    }

    fn pool_gather(x: FloatTensor<Self>, u: FloatTensor<Self>) -> FloatTensor<Self> {
        let output = (pooled(&x), x.dtype());
        record_one::<B, _>("pool_gather", vec![x, u], output, |given| {
            B::pool_gather(given.float(0), given.float(1))
        })
    }

    fn laid_out(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let output = (x.shape(), x.dtype());
        record_one::<B, _>("laid_out", vec![x], output, |given| B::laid_out(given.float(0)))
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
        let output = (by_channel(&x), DType::F32);
        record_one::<B, _>("channel_moments", vec![x], output, |given| {
            B::channel_moments(given.float(0))
        })
    }

    fn channel_correlate(
        g: FloatTensor<Self>,
        x: FloatTensor<Self>,
        centre: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let output = (by_channel(&x), DType::F32);
        record_one::<B, _>("channel_correlate", vec![g, x, centre], output, |given| {
            B::channel_correlate(given.float(0), given.float(1), given.float(2))
        })
    }

    fn channel_affine(x: FloatTensor<Self>, map: [FloatTensor<Self>; 3]) -> FloatTensor<Self> {
        let output = (x.shape(), x.dtype());
        let inputs = [x].into_iter().chain(map).collect();
        record_one::<B, _>("channel_affine", inputs, output, |given| {
            B::channel_affine(given.float(0), given.floats(1))
        })
    }

    fn channel_combine(
        a: CentredScaled<FloatTensor<Self>>,
        b: CentredScaled<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let output = (a.x.shape(), a.x.dtype());
        let inputs = vec![a.x, a.centre, a.scale, b.x, b.centre, b.scale];
        record_one::<B, _>("channel_combine", inputs, output, |given| {
            let [a, b] = [0, 3].map(|start| {
                let [x, centre, scale] = given.floats(start);
                CentredScaled { x, centre, scale }
            });
            B::channel_combine(a, b)
        })
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
        let shape = if after.pool { pooled(&x) } else { x.shape() };
        let output = (shape, x.dtype());
        let inputs = [x].into_iter().chain(map).collect();
        record_one::<B, _>("activate", inputs, output, move |given| {
            B::activate(given.float(0), given.floats(1), after)
        })
    }

    fn norm_backward(
        dz: FloatTensor<Self>,
        x: FloatTensor<Self>,
        map: [FloatTensor<Self>; 3],
        inverse: Option<FloatTensor<Self>>,
        after: Option<Rectified>,
        wanted: [bool; 2],
    ) -> [Option<FloatTensor<Self>>; 2] {
        let outputs = [(by_channel(&x), DType::F32), (x.shape(), x.dtype())];
        let outputs =
            outputs.into_iter().zip(wanted).filter_map(|(of, wanted)| wanted.then_some(of));
        let outputs = outputs.collect();
        let of_batch = inverse.is_some();
        let inputs = [dz, x].into_iter().chain(map).chain(inverse).collect();
        let found = record::<B, _>("norm_backward", inputs, outputs, move |given| {
            let [dz, x] = given.floats(0);
            let map = given.floats(2);
            let inverse = of_batch.then(|| given.float(5));
            let found = B::norm_backward(dz, x, map, inverse, after, wanted);
            found.into_iter().flatten().collect()
        });
        let mut found = found.into_iter();
        wanted.map(|wanted| wanted.then(|| found.next().expect("as many as were recorded")))
    }
}

impl<B: FusionBackend + FusedConvolution> FusedConvolution for Fusion<B> {
    fn serves(shape: &ConvShape) -> Result<(), FallbackReason> {
        B::serves(shape)
    }

    fn convolution(
        wanted: Role,
        operands: [FloatTensor<Self>; 2],
        shape: &ConvShape,
    ) -> FloatTensor<Self> {
        let output = (Shape::from(shape.of(wanted)), operands[0].dtype());
        let shape = *shape;
        record_one::<B, _>("convolution", operands.into(), output, move |given| {
            B::convolution(wanted, given.floats(0), &shape)
        })
    }
}

fn pooled(x: &impl TensorMetadata) -> Shape {
    let [n, c, h, w] = x.shape().dims();
    Shape::new([n, c, h / 2, w / 2])
}

fn by_channel(x: &impl TensorMetadata) -> Shape {
    let [_, c, _, _] = x.shape().dims();
    Shape::new([2, c])
}
