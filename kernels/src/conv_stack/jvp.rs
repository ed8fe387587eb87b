//! Forward-mode derivatives of the stack: Jacobian-vector and Hessian-vector products.

use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor};

use super::block::check;
use super::fused::{self, StackCall};
use super::lanes::{Lane, LaneTangent};
use super::{ConvBlock, StackOptions, Statistics, jvp_reference};
use crate::host::{read, wrap, write};
use crate::registry::{self, StackTable};
use crate::twice_differentiable::{HostTwiceDifferentiable, PrimalSlices, TangentSlices};

/// Tangents of one block's tensors, or of their gradients.
#[derive(Clone, Debug)]
pub struct BlockTangent<B: Backend> {
    /// Of the convolution weight, `[c_out, c_in, 3, 3]`.
    pub weight: Tensor<B, 4>,
    /// Of the convolution bias, `[c_out]`; `None` if the bias is absent or its tangent zero.
    pub bias: Option<Tensor<B, 1>>,
    /// Of the gain of the normalisation, `[c_out]`; `None` if the gain is absent or its tangent zero.
    pub gamma: Option<Tensor<B, 1>>,
    /// Of the shift of the normalisation, `[c_out]`; `None` if the shift is absent or its tangent zero.
    pub beta: Option<Tensor<B, 1>>,
}

/// Tangents of the images and blocks of a stack, or of their gradients.
#[derive(Clone, Debug)]
pub struct StackTangent<B: Backend> {
    /// Of the images, `[n, c, h, w]`; `None` is zero.
    pub images: Option<Tensor<B, 4>>,
    /// Of every block.
    pub blocks: Vec<BlockTangent<B>>,
}

/// The features of a stack and their tangent, as [`conv_stack_jvp`] returns them.
pub struct StackJvp<B: Backend> {
    /// Output of the last block, `[n, c', h', w']`.
    pub features: Tensor<B, 4>,
    /// Their tangent, `[n, c', h', w']`.
    pub tangent: Tensor<B, 4>,
    state: JvpState<B>,
}

/// Of which gradients [`StackJvp::hvp`] returns the tangents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradientsOf {
    /// The blocks alone.
    Blocks,
    /// The images too.
    ImagesAndBlocks,
}

enum JvpState<B: Backend> {
    Host {
        call: StackCall,
        saved: Vec<Lane>,
        saved_tangent: Vec<LaneTangent>,
        blocks: Vec<ConvBlock<B>>,
        dtype: FloatDType,
    },
    Reference(Box<jvp_reference::TwoLevels<B>>),
}

/// The features of `images` and their tangent, given those of the images and the blocks: a
/// Jacobian-vector product.
///
/// [`StackJvp::hvp`] then computes Hessian-vector products with the same tangents.
///
/// # Conventions
/// Statistics given as [`Statistics::Running`] are constants. The largest pixel of a window and the
/// sign that ReLU reads are those at the primal point. Nothing here is tracked by autodiff. A backend
/// without a fused body on the host computes it by two levels of autodiff.
///
/// # Panics
/// When the blocks do not fit each other, the images or the tangents.
///
/// # Source
/// Pearlmutter, "Fast exact multiplication by the Hessian", Neural Computation 6, 1994.
pub fn conv_stack_jvp<B: Backend>(
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: Statistics<B>,
    options: StackOptions,
    tangents: StackTangent<B>,
) -> StackJvp<B> {
    let shape = check(images.dims(), blocks, &statistics, options.lanes);
    check_tangents(&images, blocks, &tangents);
    let detached = |block: &ConvBlock<B>| {
        block.map(|weight| weight.clone().detach(), |vector| vector.clone().detach())
    };
    let (images, blocks) = (images.detach(), blocks.iter().map(detached).collect::<Vec<_>>());
    if registry::table::<StackTable<B>>().is_some_and(|table| table.on_host) {
        match fused::check(&images, &blocks, &statistics) {
            Ok(()) => {
                let call = StackCall::new(shape, &blocks, &statistics, options);
                return on_host(images, blocks, statistics, call, tangents);
            }
            Err(reason) => reason.log_once("conv_stack_jvp"),
        }
    }
    let tangents = StackTangent {
        images: tangents.images.map(Tensor::detach),
        blocks: tangents.blocks.into_iter().map(BlockTangent::detach).collect(),
    };
    let reference = jvp_reference::TwoLevels { images, blocks, statistics, options, tangents };
    let (features, tangent) = reference.jvp();
    StackJvp { features, tangent, state: JvpState::Reference(Box::new(reference)) }
}

impl<B: Backend> BlockTangent<B> {
    pub(super) fn vectors(&self) -> [Option<&Tensor<B, 1>>; 3] {
        [self.bias.as_ref(), self.gamma.as_ref(), self.beta.as_ref()]
    }

    fn detach(self) -> Self {
        Self {
            weight: self.weight.detach(),
            bias: self.bias.map(Tensor::detach),
            gamma: self.gamma.map(Tensor::detach),
            beta: self.beta.map(Tensor::detach),
        }
    }
}

fn on_host<B: Backend>(
    images: Tensor<B, 4>,
    blocks: Vec<ConvBlock<B>>,
    statistics: Statistics<B>,
    call: StackCall,
    tangents: StackTangent<B>,
) -> StackJvp<B> {
    let (dtype, device) = (FloatDType::from(images.dtype()), images.device());
    let features_type = call.features_type(images.dtype());
    let operands = fused::operands(images, &blocks, statistics, true);
    let operands: Vec<_> =
        operands.into_iter().map(|operand| read(wrap::<B, 1>(operand))).collect();
    let output = call.forward(&slices(&operands), true);
    drop(operands);
    let saved = output.saved.expect("kept, as asked");
    let mut all = vec![tangents.images.map(elements)];
    for BlockTangent { weight, bias, gamma, beta } in tangents.blocks {
        all.push(Some(elements(weight)));
        all.extend([bias, gamma, beta].map(|vector| vector.map(elements)));
    }
    let tangents: Vec<_> = all.iter().map(Option::as_deref).collect();
    let primal = PrimalSlices { saved: &saved, operands: &[] };
    let (tangent, saved_tangent) = call.jvp(primal, &tangents);
    let map = |elements| write::<B, 4>(elements, call.features(), &device).cast(features_type);
    StackJvp {
        features: map(output.result),
        tangent: map(tangent),
        state: JvpState::Host { call, saved, saved_tangent, blocks, dtype },
    }
}

fn elements<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    read(tensor.cast(FloatDType::F32))
}

fn slices(all: &[Vec<f32>]) -> Vec<&[f32]> {
    all.iter().map(Vec::as_slice).collect()
}

impl<B: Backend> StackJvp<B> {
    /// The tangents of the gradients of the images and the blocks, where `grad` `[n, c', h', w']` is the
    /// gradient of the features, and `grad_tangent` its tangent; `None` is zero.
    ///
    /// Without `grad_tangent` this is the Hessian of `<grad, features>` times the tangents. If
    /// `grad_tangent` is the tangent of the loss's gradient along [`tangent`](Self::tangent), it is the
    /// Hessian of the loss times the tangents. The result has the vectors that the blocks have.
    ///
    /// # Panics
    /// When a gradient does not have the shape of the features.
    pub fn hvp(
        &self,
        grad: Tensor<B, 4>,
        grad_tangent: Option<Tensor<B, 4>>,
        of: GradientsOf,
    ) -> StackTangent<B> {
        let images = of == GradientsOf::ImagesAndBlocks;
        let (grad, grad_tangent) = (grad.detach(), grad_tangent.map(Tensor::detach));
        let wanted = self.features.dims();
        for found in [Some(&grad), grad_tangent.as_ref()].into_iter().flatten() {
            assert_eq!(found.dims(), wanted, "a gradient has the shape of the features");
        }
        match &self.state {
            JvpState::Reference(reference) => reference.hvp(grad, grad_tangent, images),
            JvpState::Host { call, saved, saved_tangent, blocks, dtype } => {
                let device = grad.device();
                let (grad, grad_tangent) = (elements(grad), grad_tangent.map(elements));
                let primal = || PrimalSlices { saved, operands: &[] };
                let mut wanted = vec![true; 1 + 4 * blocks.len()];
                wanted[0] = images;
                let (_, intermediate_grads) = call.vjp(primal(), &grad, &[false], true);
                let intermediate_grads = &intermediate_grads.expect("kept, as asked");
                let tangent = TangentSlices { tangents: &[], saved_tangent, intermediate_grads };
                let found = call.jvp_of_vjp(primal(), tangent, grad_tangent.as_deref(), &wanted);
                let mut found = found.into_iter();
                let images = found.next().expect("the first operand");
                let images = images.map(|dx| write(dx, call.images(), &device).cast(*dtype));
                StackTangent { images, blocks: block_tangents(found.flatten(), blocks, &device) }
            }
        }
    }
}

/// Four tensors for each block, without the vectors that it lacks, in their element types.
fn block_tangents<B: Backend>(
    mut found: impl Iterator<Item = Vec<f32>>,
    blocks: &[ConvBlock<B>],
    device: &B::Device,
) -> Vec<BlockTangent<B>> {
    let mut next = || found.next().expect("four tensors a block");
    let block = |block: &ConvBlock<B>| {
        let dims = block.weight.dims();
        let weight = write(next(), dims, device).cast(block.weight.dtype());
        let [bias, gamma, beta] = block.vectors().map(|(_, vector)| {
            let found = next();
            let written = |like: &Tensor<B, 1>| write(found, [dims[0]], device).cast(like.dtype());
            vector.map(written)
        });
        BlockTangent { weight, bias, gamma, beta }
    };
    blocks.iter().map(block).collect()
}

/// Whether the tangents have the shapes of their primals.
fn check_tangents<B: Backend>(
    images: &Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    tangents: &StackTangent<B>,
) {
    let same = |name: &str, wanted: Vec<usize>, found: Vec<usize>| {
        assert!(wanted == found, "the tangent of {name} needs shape {wanted:?}, found {found:?}");
    };
    if let Some(tangent) = &tangents.images {
        same("the images", images.dims().to_vec(), tangent.dims().to_vec());
    }
    same("the blocks", vec![blocks.len()], vec![tangents.blocks.len()]);
    for (block, tangent) in blocks.iter().zip(&tangents.blocks) {
        same("weight", block.weight.dims().to_vec(), tangent.weight.dims().to_vec());
        for ((name, vector), tangent) in block.vectors().into_iter().zip(tangent.vectors()) {
            let Some(tangent) = tangent else { continue };
            let wanted = vector.map_or(Vec::new(), |vector| vector.dims().to_vec());
            same(name, wanted, tangent.dims().to_vec());
        }
    }
}
