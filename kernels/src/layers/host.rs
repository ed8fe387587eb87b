//! Fused layers of every host backend.

use burn::tensor::ops::FloatTensor;

use super::{FusedConvolution, FusedLayers};
use crate::channels::{self, CentredScaled};
use crate::conv2d::{self, ConvShape, Role};
use crate::fallback::FallbackReason;
use crate::host::HostBackend;
use crate::norm_relu::Rectified;
use crate::{batch_norm, global_avg_pool, max_pool};

impl<B: HostBackend> FusedLayers for B {
    fn pool(x: FloatTensor<B>) -> FloatTensor<B> {
        max_pool::host::pool::<B>(x)
    }

    fn pool_scatter(x: FloatTensor<B>, dy: FloatTensor<B>) -> FloatTensor<B> {
        max_pool::host::scatter::<B>(x, dy)
    }

    fn pool_gather(x: FloatTensor<B>, u: FloatTensor<B>) -> FloatTensor<B> {
        max_pool::host::gather::<B>(x, u)
    }

    fn plane_mean(x: FloatTensor<B>) -> FloatTensor<B> {
        global_avg_pool::host::mean::<B>(x)
    }

    fn plane_spread(u: FloatTensor<B>, size: [usize; 2]) -> FloatTensor<B> {
        global_avg_pool::host::spread::<B>(u, size)
    }

    fn channel_moments(x: FloatTensor<B>) -> FloatTensor<B> {
        channels::host::moments::<B>(x)
    }

    fn channel_correlate(
        g: FloatTensor<B>,
        x: FloatTensor<B>,
        centre: FloatTensor<B>,
    ) -> FloatTensor<B> {
        channels::host::correlate::<B>(g, x, centre)
    }

    fn channel_affine(x: FloatTensor<B>, map: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        channels::host::affine::<B>(x, map)
    }

    fn channel_combine(
        a: CentredScaled<FloatTensor<B>>,
        b: CentredScaled<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        channels::host::combine::<B>(a, b)
    }

    fn batch_norm(
        x: FloatTensor<B>,
        affine: [FloatTensor<B>; 2],
        epsilon: f64,
        after: Option<Rectified>,
    ) -> [FloatTensor<B>; 2] {
        batch_norm::fused::normalise::<B>(x, affine, epsilon, after)
    }
}

impl<B: HostBackend> FusedConvolution for B {
    fn serves(shape: &ConvShape) -> Result<(), FallbackReason> {
        conv2d::cpu::serves(shape)
    }

    fn convolution(wanted: Role, of: [FloatTensor<B>; 2], shape: &ConvShape) -> FloatTensor<B> {
        conv2d::host::convolution::<B>(wanted, of, shape)
    }
}
