//! The stack as an operation of a backend: what it is told, and its operands.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, FloatDType, Tensor};

use super::cpu::StackShape;
use super::{ConvBlock, Moments, StackOptions, StackOutput, Statistics};
use crate::fallback::{all_taken, goes_into_f32};
use crate::host::{unwrap, wrap};
use crate::precision::Precision;
use crate::registry::{self, Body};
use crate::twice_differentiable::Twice;

/// The settings of a fused body.
///
/// Its operands are images `[n, c, h, w]`, then weight, bias, gamma and beta of every block, then the given
/// moments, if there are any: mean and variance of every block. It gives the features `[n, c', h', w']` and
/// untracked vectors of mean and variance of every block's batch, none under running statistics. All operands
/// are f32, but for images on a device; a bias, gamma or beta that is absent comes as zeros, ones or zeros, a
/// bias on a device as any numbers.
#[derive(Clone, Debug)]
pub struct StackCall {
    /// Shape of one lane's images and blocks.
    pub shape: StackShape,
    /// Settings of the stack, with ghost batches only where no moments are given.
    pub options: StackOptions,
    /// True if moments are given, which follow the parameters among the operands: mean and variance
    /// of every block. Those of the batch are taken otherwise.
    pub running: bool,
    /// True for each block with a bias; without, its place has any numbers on a device and zeros on a host.
    pub biased: Vec<bool>,
}

impl StackCall {
    /// Shape of the images, `[n, lanes * c, h, w]`.
    pub fn images(&self) -> [usize; 4] {
        let StackShape { n, c, h, w, .. } = self.shape;
        [n, self.options.lanes * c, h, w]
    }

    /// Shape of the features, `[n, lanes * c', h', w']`.
    pub fn features(&self) -> [usize; 4] {
        let [n, c, h, w] = self.shape.output();
        [n, self.options.lanes * c, h, w]
    }

    /// The type of the features of images of `dtype`.
    fn features_type(&self, dtype: DType) -> FloatDType {
        match self.options.precision {
            Precision::F32 | Precision::Tf32 => dtype.into(),
            Precision::MixedF16 | Precision::MixedBf16 => FloatDType::F32,
        }
    }
}

/// True if the fused body takes these element types.
pub(crate) fn takes<B: Backend>(
    images: &Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: &Statistics<B>,
) -> bool {
    let running = match statistics {
        Statistics::Batch => &[][..],
        Statistics::Running(moments) => moments,
    };
    let running = running.iter().flat_map(|moments| [&moments.mean, &moments.variance]);
    let vectors = blocks.iter().flat_map(|block| block.vectors().map(|(_, vector)| vector));
    let vectors = vectors.flatten().chain(running).map(Tensor::dtype);
    let weights = blocks.iter().map(|block| block.weight.dtype());
    all_taken("conv_stack", weights.chain(vectors).chain([images.dtype()]), goes_into_f32)
}

pub(crate) fn run<B: Backend>(
    body: Body<B, Twice<StackCall>>,
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: Statistics<B>,
    options: StackOptions,
    shape: StackShape,
) -> StackOutput<B> {
    let running = matches!(statistics, Statistics::Running(_));
    let biased = blocks.iter().map(|block| block.bias.is_some()).collect();
    let call = StackCall { shape, options, running, biased };
    let dtype = call.features_type(images.dtype());
    let operands = operands(images, blocks, statistics, registry::on_host::<B>());
    let (features, moments) = body(operands, &Twice(call));
    let features = in_type(wrap::<B, 4>(features), dtype);
    StackOutput { features, moments: pairs(moments) }
}

/// The tensor in this type; an operation less where it is.
fn in_type<B: Backend, const D: usize>(tensor: Tensor<B, D>, dtype: FloatDType) -> Tensor<B, D> {
    if FloatDType::from(tensor.dtype()) == dtype { tensor } else { tensor.cast(dtype) }
}

/// The operands of the fused body: the images, on a device in their own type; the tensors of every block
/// with the neutral values where one is absent; and the moments that are given.
fn operands<B: Backend>(
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: Statistics<B>,
    on_host: bool,
) -> Vec<FloatTensor<B>> {
    let images = if on_host { in_type(images, FloatDType::F32) } else { images };
    let mut operands = vec![unwrap(images)];
    for block in blocks {
        let (length, device) = (block.weight.dims()[0], block.weight.device());
        operands.push(unwrap(in_type(block.weight.clone(), FloatDType::F32)));
        let full = |value| Tensor::<B, 1>::full([length], value, (&device, DType::F32));
        // A device does not read a bias that is absent, and a fill would be a launch.
        let no_bias = || match on_host {
            true => full(0.0),
            false => Tensor::empty([length], (&device, DType::F32)),
        };
        let vectors = [
            block.bias.clone().unwrap_or_else(no_bias),
            block.gamma.clone().unwrap_or_else(|| full(1.0)),
            block.beta.clone().unwrap_or_else(|| full(0.0)),
        ];
        operands.extend(vectors.map(|vector| unwrap(in_type(vector, FloatDType::F32))));
    }
    if let Statistics::Running(moments) = statistics {
        let vectors = moments.into_iter().flat_map(|block| [block.mean, block.variance]);
        operands.extend(vectors.map(|of| unwrap(in_type(of.detach(), FloatDType::F32))));
    }
    operands
}

/// Mean and variance of every block in turn.
fn pairs<B: Backend>(vectors: Vec<FloatTensor<B>>) -> Vec<Moments<B>> {
    let mut vectors = vectors.into_iter().map(wrap::<B, 1>);
    let pair = || Some(Moments { mean: vectors.next()?, variance: vectors.next()? });
    std::iter::from_fn(pair).collect()
}
