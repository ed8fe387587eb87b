//! From tensors to one vector of parameters and back.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor};

use super::cpu::{self, Output, Saved, StackShape};
use super::{ConvBlock, Moments, StackOutput, Statistics};
use crate::door::{FusedOps, VTable};
use crate::host::{HostBackend, read, unwrap, wrap, write};

/// What a fused body is told besides its tensors.
#[derive(Clone, Debug)]
pub struct StackCall {
    /// Shape of the images and the blocks.
    pub shape: StackShape,
    /// Running moments of all blocks (mean, variance, mean, …); the batch's own where absent.
    pub running: Option<Vec<f32>>,
    /// Added to the variance.
    pub epsilon: f32,
}

/// Whether the fused body takes these element types.
pub(crate) fn serves<B: Backend>(
    images: &Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: &Statistics<B>,
) -> bool {
    let running = match statistics {
        Statistics::Batch => &[][..],
        Statistics::Running(moments) => moments,
    };
    let running = running.iter().flat_map(|moments| [&moments.mean, &moments.variance]);
    let vectors = blocks.iter().flat_map(|block| [&block.bias, &block.gamma, &block.beta]);
    let vectors = vectors.flatten().chain(running).map(Tensor::dtype);
    let weights = blocks.iter().map(|block| block.weight.dtype());
    weights.chain(vectors).chain([images.dtype()]).all(|dtype| dtype == DType::F32)
}

pub(crate) fn run<B: Backend>(
    vtable: &VTable<B>,
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: Statistics<B>,
    epsilon: f64,
    shape: StackShape,
) -> StackOutput<B> {
    let device = images.device();
    let parameters = flatten(blocks, &device);
    let batch = matches!(statistics, Statistics::Batch);
    let running = match statistics {
        Statistics::Batch => None,
        Statistics::Running(moments) => Some(read_moments(moments)),
    };
    let call = StackCall { shape, running, epsilon: epsilon as f32 };
    let (features, moments) = (vtable.conv_stack)(unwrap(images), unwrap(parameters), &call);
    let moments = if batch { split_moments(wrap(moments), blocks) } else { Vec::new() };
    StackOutput { features: wrap(features), moments }
}

fn flatten<B: Backend>(blocks: &[ConvBlock<B>], device: &B::Device) -> Tensor<B, 1> {
    let mut parts = Vec::with_capacity(4 * blocks.len());
    for block in blocks {
        let [out, ..] = block.weight.dims();
        let or = |vector: &Option<Tensor<B, 1>>, value: f32| match vector {
            Some(vector) => vector.clone(),
            None => Tensor::full([out], value, device),
        };
        parts.push(block.weight.clone().flatten(0, 3));
        parts.extend([or(&block.bias, 0.0), or(&block.gamma, 1.0), or(&block.beta, 0.0)]);
    }
    Tensor::cat(parts, 0)
}

fn read_moments<B: Backend>(moments: Vec<Moments<B>>) -> Vec<f32> {
    let parts = moments.into_iter().flat_map(|block| [block.mean, block.variance]).collect();
    read(Tensor::cat(parts, 0))
}

fn split_moments<B: Backend>(all: Tensor<B, 1>, blocks: &[ConvBlock<B>]) -> Vec<Moments<B>> {
    let mut start = 0;
    let mut next = |length| {
        let part = all.clone().narrow(0, start, length);
        start += length;
        part
    };
    let channels = blocks.iter().map(|block| block.weight.dims()[0]);
    channels.map(|out| Moments { mean: next(out), variance: next(out) }).collect()
}

/// The forward pass of a host backend, with what its backward pass needs where `keep` asks for it.
pub(crate) fn forward<B: HostBackend>(
    images: FloatTensor<B>,
    parameters: FloatTensor<B>,
    call: &StackCall,
    keep: bool,
) -> (FloatTensor<B>, FloatTensor<B>, Option<Saved>) {
    let images = wrap::<B, 4>(images);
    let device = images.device();
    let statistics = match &call.running {
        Some(moments) => cpu::Statistics::Running(moments),
        None => cpu::Statistics::Batch,
    };
    let parameters = read(wrap::<B, 1>(parameters));
    let images = read(images);
    let Output { y, moments, saved } =
        cpu::forward(&call.shape, &images, &parameters, statistics, call.epsilon, keep);
    let length = moments.len();
    let features = write::<B, 4>(y, call.shape.output(), &device);
    (unwrap(features), unwrap(write::<B, 1>(moments, [length], &device)), saved)
}

macro_rules! host_ops {
    ($($(#[$attribute:meta])* $backend:ty),* $(,)?) => {$(
        $(#[$attribute])*
        impl FusedOps for $backend {
            fn conv_stack(
                images: FloatTensor<Self>,
                parameters: FloatTensor<Self>,
                call: &StackCall,
            ) -> (FloatTensor<Self>, FloatTensor<Self>) {
                let (features, moments, _) = forward::<Self>(images, parameters, call, false);
                (features, moments)
            }
        }
    )*};
}

host_ops!(
    #[cfg(feature = "flex")]
    burn::backend::Flex,
    #[cfg(feature = "ndarray")]
    burn::backend::NdArray<f32, i64>,
    #[cfg(feature = "ndarray")]
    burn::backend::NdArray<f32, i32>,
    #[cfg(feature = "candle")]
    #[allow(deprecated)]
    burn::backend::Candle<f32, i64>,
);
