//! From tensors to one vector of parameters and back.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, FloatDType, Tensor};

use super::autodiff::{Forward, StackOps};
use super::cpu::StackShape;
use super::{ConvBlock, Moments, StackOptions, StackOutput, Statistics};
use crate::door::{FusedOps, StackTable};
use crate::host::{HostBackend, read, unwrap, wrap};
use crate::precision::Precision;
use crate::refusal::Refusal;

/// What a fused body is told besides its tensors.
#[derive(Clone, Debug)]
pub struct StackCall {
    /// Shape of one lane's images and blocks.
    pub shape: StackShape,
    /// Lanes: stacks side by side in the channels.
    pub lanes: usize,
    /// Running moments of all blocks (mean, variance, mean, …); the batch's own where absent.
    pub running: Option<Vec<f32>>,
    /// Added to the variance.
    pub epsilon: f32,
    /// What convolutions compute in; always `f32` but where [`ON_HOST`](FusedOps::ON_HOST).
    pub precision: Precision,
}

impl StackCall {
    pub(super) fn new<B: Backend>(
        shape: StackShape,
        statistics: Statistics<B>,
        StackOptions { epsilon, lanes, precision }: StackOptions,
    ) -> Self {
        let running = match statistics {
            Statistics::Batch => None,
            Statistics::Running(moments) => Some(read_moments(moments)),
        };
        Self { shape, lanes, running, epsilon: epsilon as f32, precision }
    }

    /// Shape of the images, `[n, lanes * c, h, w]`.
    pub fn images(&self) -> [usize; 4] {
        let StackShape { n, c, h, w, .. } = self.shape;
        [n, self.lanes * c, h, w]
    }

    /// Shape of the features, `[n, lanes * c', h', w']`.
    pub fn features(&self) -> [usize; 4] {
        let [n, c, h, w] = self.shape.output();
        [n, self.lanes * c, h, w]
    }

    /// The type of the features of images of `dtype`.
    pub(super) fn features_type(&self, dtype: DType) -> FloatDType {
        match self.precision {
            Precision::F32 => dtype.into(),
            Precision::MixedF16 | Precision::MixedBf16 => FloatDType::F32,
        }
    }

    /// Length of the parameters of all lanes.
    pub fn parameter_count(&self) -> usize {
        self.lanes * self.shape.parameters()
    }
}

/// Whether the fused body takes these element types.
///
/// # Errors
/// A [`Refusal`] that names the first type it does not take.
pub(crate) fn check<B: Backend>(
    images: &Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: &Statistics<B>,
) -> Result<(), Refusal> {
    let running = match statistics {
        Statistics::Batch => &[][..],
        Statistics::Running(moments) => moments,
    };
    let running = running.iter().flat_map(|moments| [&moments.mean, &moments.variance]);
    let vectors = blocks.iter().flat_map(|block| [&block.bias, &block.gamma, &block.beta]);
    let vectors = vectors.flatten().chain(running).map(Tensor::dtype);
    let weights = blocks.iter().map(|block| block.weight.dtype());
    let mut all = weights.chain(vectors).chain([images.dtype()]);
    match all.find(|dtype| !matches!(dtype, DType::F32 | DType::F16 | DType::BF16)) {
        Some(found) => Err(Refusal::ElementType { found }),
        None => Ok(()),
    }
}

pub(crate) fn run<B: Backend>(
    table: &StackTable<B>,
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: Statistics<B>,
    options: StackOptions,
    shape: StackShape,
) -> StackOutput<B> {
    let parameters = parameters(blocks);
    let call = StackCall::new(shape, statistics, options);
    let dtype = call.features_type(images.dtype());
    let images = images.cast(FloatDType::F32);
    let (features, moments) = (table.conv_stack)(unwrap(images), unwrap(parameters), &call);
    let moments =
        if call.running.is_none() { split_moments(wrap(moments), blocks) } else { Vec::new() };
    StackOutput { features: wrap::<B, 4>(features).cast(dtype), moments }
}

/// The tensors of all blocks as one vector, with `absent` where bias, gamma or beta is.
pub(super) fn flatten<'a, B: Backend>(
    blocks: impl Iterator<Item = (&'a Tensor<B, 4>, [&'a Option<Tensor<B, 1>>; 3])>,
    absent: [f32; 3],
) -> Tensor<B, 1> {
    let mut parts = Vec::new();
    for (weight, vectors) in blocks {
        let (length, device) = (weight.dims()[0], weight.device());
        parts.push(weight.clone().flatten(0, 3).cast(FloatDType::F32));
        parts.extend(vectors.into_iter().zip(absent).map(|(vector, absent)| {
            let absent = || Tensor::<B, 1>::full([length], absent, (&device, DType::F32));
            vector.clone().unwrap_or_else(absent).cast(FloatDType::F32)
        }));
    }
    Tensor::cat(parts, 0)
}

/// [`flatten`] of the blocks of a stack.
pub(super) fn parameters<B: Backend>(blocks: &[ConvBlock<B>]) -> Tensor<B, 1> {
    let parts = blocks.iter().map(|b| (&b.weight, [&b.bias, &b.gamma, &b.beta]));
    flatten(parts, [0.0, 1.0, 0.0])
}

fn read_moments<B: Backend>(moments: Vec<Moments<B>>) -> Vec<f32> {
    let parts = moments.into_iter().flat_map(|block| [block.mean, block.variance]);
    read(Tensor::cat(parts.map(|part| part.cast(FloatDType::F32)).collect(), 0))
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

impl<B: HostBackend> FusedOps for B {
    const ON_HOST: bool = true;

    fn conv_stack(
        images: FloatTensor<B>,
        parameters: FloatTensor<B>,
        call: &StackCall,
    ) -> (FloatTensor<B>, FloatTensor<B>) {
        let Forward { features, moments, .. } = B::forward(images, parameters, call, false);
        (features, moments)
    }
}
