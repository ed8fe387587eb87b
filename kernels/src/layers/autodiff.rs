//! Fused layers under one level of autodiff, over any backend that has them.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::DType;
use burn::tensor::ops::FloatTensor;

use super::{FusedConvolution, FusedLayers};
use crate::channels::{self, CentredScaled};
use crate::conv2d::{self, ConvShape, Role};
use crate::fallback::FallbackReason;
use crate::norm_relu::{self, Rectified};
use crate::{batch_norm, global_avg_pool, max_pool};

impl<B: FusedLayers, C: CheckpointStrategy> FusedLayers for Autodiff<B, C> {
    fn takes(found: DType) -> bool {
        B::takes(found)
    }

    fn pool(x: FloatTensor<Self>) -> FloatTensor<Self> {
        max_pool::autodiff::pool::<B, C>(x)
    }

    fn pool_scatter(x: FloatTensor<Self>, dy: FloatTensor<Self>) -> FloatTensor<Self> {
        max_pool::autodiff::scatter::<B, C>(x, dy)
    }

    fn pool_gather(x: FloatTensor<Self>, u: FloatTensor<Self>) -> FloatTensor<Self> {
        max_pool::autodiff::gather::<B, C>(x, u)
    }

    fn plane_mean(x: FloatTensor<Self>) -> FloatTensor<Self> {
        global_avg_pool::autodiff::mean::<B, C>(x)
    }

    fn plane_spread(u: FloatTensor<Self>, size: [usize; 2]) -> FloatTensor<Self> {
        global_avg_pool::autodiff::spread::<B, C>(u, size)
    }

    fn channel_moments(x: FloatTensor<Self>) -> FloatTensor<Self> {
        channels::autodiff::moments::<B, C>(x)
    }

    fn channel_correlate(
        g: FloatTensor<Self>,
        x: FloatTensor<Self>,
        centre: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        channels::autodiff::correlate::<B, C>(g, x, centre)
    }

    fn channel_affine(x: FloatTensor<Self>, map: [FloatTensor<Self>; 3]) -> FloatTensor<Self> {
        channels::autodiff::affine::<B, C>(x, map)
    }

    fn channel_combine(
        a: CentredScaled<FloatTensor<Self>>,
        b: CentredScaled<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        channels::autodiff::combine::<B, C>(a, b)
    }

    fn batch_norm(
        x: FloatTensor<Self>,
        affine: [FloatTensor<Self>; 2],
        epsilon: f64,
        after: Option<Rectified>,
    ) -> [FloatTensor<Self>; 2] {
        batch_norm::autodiff::normalise::<B, C>(x, affine, epsilon, after)
    }

    fn activate(
        x: FloatTensor<Self>,
        map: [FloatTensor<Self>; 3],
        after: Rectified,
    ) -> FloatTensor<Self> {
        norm_relu::autodiff::activate::<B, C>(x, map, after)
    }
}

impl<B: FusedConvolution, C: CheckpointStrategy> FusedConvolution for Autodiff<B, C> {
    fn serves(shape: &ConvShape) -> Result<(), FallbackReason> {
        B::serves(shape)
    }

    fn convolution(
        wanted: Role,
        of: [FloatTensor<Self>; 2],
        shape: &ConvShape,
    ) -> FloatTensor<Self> {
        conv2d::autodiff::convolution::<B, C>(wanted, of, shape)
    }
}
