//! The stack as an operation of a backend: what it is told, and its operands.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, FloatDType, Tensor};

use super::cpu::StackShape;
use super::{ConvBlock, Moments, StackOptions, StackOutput, Statistics};
use crate::door::StackTable;
use crate::host::{read, unwrap, wrap};
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
    /// What convolutions compute in; always `f32` but where [`ON_HOST`](crate::FusedOps::ON_HOST).
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
    let call = StackCall::new(shape, statistics, options);
    let dtype = call.features_type(images.dtype());
    let (features, moments) = (table.conv_stack)(operands(images, blocks), &call);
    let moments =
        if call.running.is_none() { split_moments(wrap(moments), blocks) } else { Vec::new() };
    StackOutput { features: in_type(wrap::<B, 4>(features), dtype), moments }
}

/// The tensor in this type; an operation less where it is.
pub(super) fn in_type<B: Backend, const D: usize>(
    tensor: Tensor<B, D>,
    dtype: FloatDType,
) -> Tensor<B, D> {
    if FloatDType::from(tensor.dtype()) == dtype { tensor } else { tensor.cast(dtype) }
}

/// What the fused body takes: the images, and the tensors of every block with what normalisation
/// is without where one is absent.
pub(super) fn operands<B: Backend>(
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
) -> Vec<FloatTensor<B>> {
    let mut operands = vec![unwrap(in_type(images, FloatDType::F32))];
    for block in blocks {
        let (length, device) = (block.weight.dims()[0], block.weight.device());
        operands.push(unwrap(in_type(block.weight.clone(), FloatDType::F32)));
        let vectors = [(&block.bias, 0.0), (&block.gamma, 1.0), (&block.beta, 0.0)];
        operands.extend(vectors.map(|(vector, absent)| {
            let absent = || Tensor::<B, 1>::full([length], absent, (&device, DType::F32));
            unwrap(in_type(vector.clone().unwrap_or_else(absent), FloatDType::F32))
        }));
    }
    operands
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
