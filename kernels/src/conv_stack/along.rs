//! The stack along a direction of its images and parameters.

use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor};

use super::block::check;
use super::fused::{self, StackCall};
use super::lanes::{Tape, TapeTangent};
use super::{ConvBlock, StackError, StackOptions, Statistics, along_reference};
use crate::door::{self, StackTable};
use crate::host::{read, wrap, write};
use crate::smooth::{Moved, Point, Smooth};

/// A change of one block's tensors, or of their gradients.
#[derive(Clone, Debug)]
pub struct BlockTangent<B: Backend> {
    /// Of the convolution weight, `[c_out, c_in, 3, 3]`.
    pub weight: Tensor<B, 4>,
    /// Of the convolution bias, `[c_out]`; none if it is absent or stands still.
    pub bias: Option<Tensor<B, 1>>,
    /// Of the gain of the normalisation, `[c_out]`; none if it is absent or stands still.
    pub gamma: Option<Tensor<B, 1>>,
    /// Of the shift of the normalisation, `[c_out]`; none if it is absent or stands still.
    pub beta: Option<Tensor<B, 1>>,
}

/// Where a stack moves, or how its gradients do.
#[derive(Clone, Debug)]
pub struct StackDirection<B: Backend> {
    /// Of the images, `[n, c, h, w]`; none if they stand still.
    pub images: Option<Tensor<B, 4>>,
    /// Of every block.
    pub blocks: Vec<BlockTangent<B>>,
}

/// The stack at a point and along a direction, as [`conv_stack_along`] returns it.
pub struct StackTangent<B: Backend> {
    /// Output of the last block, `[n, c', h', w']`.
    pub features: Tensor<B, 4>,
    /// How fast it changes, `[n, c', h', w']`.
    pub along: Tensor<B, 4>,
    kept: Kept<B>,
}

/// What [`StackTangent::gradients`] finds the gradients of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradientsOf {
    /// The blocks alone.
    Blocks,
    /// The images too.
    ImagesAndBlocks,
}

enum Kept<B: Backend> {
    Host {
        call: StackCall,
        tape: Tape,
        tangent: TapeTangent,
        blocks: Vec<ConvBlock<B>>,
        dtype: FloatDType,
    },
    Reference(Box<along_reference::Point<B>>),
}

/// Runs `images` through the blocks, and finds how fast the features change where the images and the
/// blocks move along `direction`: a Jacobian-vector product.
///
/// [`StackTangent::gradients`] then finds how fast the gradients change along it.
///
/// # Conventions
/// Statistics given as [`Statistics::Running`] stand still. The largest pixel of a window and the
/// sign that ReLU asks for are those at the point. Nothing here is tracked by autodiff. On a backend
/// without a fused body on the host, two levels of autodiff do the work.
///
/// # Panics
/// When the blocks do not fit each other, the images or the direction, with the text of a
/// [`StackError`].
///
/// # Source
/// Pearlmutter, "Fast exact multiplication by the Hessian", Neural Computation 6, 1994.
pub fn conv_stack_along<B: Backend>(
    images: Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    statistics: Statistics<B>,
    options: StackOptions,
    direction: StackDirection<B>,
) -> StackTangent<B> {
    let shape = check(images.dims(), blocks, &statistics, options.lanes)
        .and_then(|shape| fits(&images, blocks, &direction).map(|()| shape));
    let shape = match shape {
        Ok(shape) => shape,
        Err(error) => panic!("{error}"),
    };
    let (images, blocks) = (images.detach(), blocks.iter().map(still).collect::<Vec<_>>());
    if door::table::<StackTable<B>>().is_some_and(|table| table.on_host) {
        match fused::check(&images, &blocks, &statistics) {
            Ok(()) => {
                let call = StackCall::new(shape, &blocks, &statistics, options);
                return on_host(images, blocks, statistics, call, direction);
            }
            Err(refusal) => refusal.note("conv_stack_along"),
        }
    }
    let direction = StackDirection {
        images: direction.images.map(Tensor::detach),
        blocks: direction.blocks.into_iter().map(BlockTangent::detach).collect(),
    };
    let point = along_reference::Point { images, blocks, statistics, options, direction };
    let (features, along) = point.forward();
    StackTangent { features, along, kept: Kept::Reference(Box::new(point)) }
}

/// The block without its history.
fn still<B: Backend>(block: &ConvBlock<B>) -> ConvBlock<B> {
    let vector = |vector: &Option<Tensor<B, 1>>| vector.clone().map(Tensor::detach);
    ConvBlock {
        weight: block.weight.clone().detach(),
        bias: vector(&block.bias),
        gamma: vector(&block.gamma),
        beta: vector(&block.beta),
        stride: block.stride,
        pool: block.pool,
    }
}

impl<B: Backend> BlockTangent<B> {
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
    direction: StackDirection<B>,
) -> StackTangent<B> {
    let (dtype, device) = (FloatDType::from(images.dtype()), images.device());
    let features_type = call.features_type(images.dtype());
    let operands = fused::operands(images, &blocks, statistics, true);
    let operands: Vec<_> =
        operands.into_iter().map(|operand| read(wrap::<B, 1>(operand))).collect();
    let passed = call.forward(&slices(&operands), true);
    drop(operands);
    let tape = passed.tape.expect("kept, as asked");
    let mut moved = vec![direction.images.map(elements)];
    for BlockTangent { weight, bias, gamma, beta } in direction.blocks {
        moved.push(Some(elements(weight)));
        moved.extend([bias, gamma, beta].map(|vector| vector.map(elements)));
    }
    let moved: Vec<_> = moved.iter().map(Option::as_deref).collect();
    let (along, tangent) = call.forward_along(Point { tape: &tape, operands: &[] }, &moved);
    let map = |elements| write::<B, 4>(elements, call.features(), &device).cast(features_type);
    StackTangent {
        features: map(passed.result),
        along: map(along),
        kept: Kept::Host { call, tape, tangent, blocks, dtype },
    }
}

fn elements<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    read(tensor.cast(FloatDType::F32))
}

fn slices(all: &[Vec<f32>]) -> Vec<&[f32]> {
    all.iter().map(Vec::as_slice).collect()
}

impl<B: Backend> StackTangent<B> {
    /// How fast the gradients of the images and the blocks change along the direction, where `grad`
    /// `[n, c', h', w']` is the gradient of the features, and changes by `grad_along`, or not at all.
    ///
    /// With `grad` held still this is the Hessian of `<grad, features>` times the direction. With the
    /// change of the loss's gradient along [`along`](Self::along) as `grad_along` it is the Hessian of
    /// the loss times the direction. The result has the vectors that the blocks have.
    ///
    /// # Panics
    /// When a gradient does not have the shape of the features.
    pub fn gradients(
        &self,
        grad: Tensor<B, 4>,
        grad_along: Option<Tensor<B, 4>>,
        of: GradientsOf,
    ) -> StackDirection<B> {
        let images = of == GradientsOf::ImagesAndBlocks;
        let (grad, grad_along) = (grad.detach(), grad_along.map(Tensor::detach));
        let wanted = self.features.dims();
        for found in [Some(&grad), grad_along.as_ref()].into_iter().flatten() {
            assert_eq!(found.dims(), wanted, "a gradient has the shape of the features");
        }
        match &self.kept {
            Kept::Reference(point) => point.gradients(grad, grad_along, images),
            Kept::Host { call, tape, tangent, blocks, dtype } => {
                let device = grad.device();
                let (grad, change) = (elements(grad), grad_along.map(elements));
                let point = || Point { tape, operands: &[] };
                let mut wanted = vec![true; 1 + 4 * blocks.len()];
                wanted[0] = images;
                let (_, between) = call.backward(point(), &grad, &[false], true);
                let between = &between.expect("kept, as asked");
                let moved = Moved { direction: &[], tangent, between };
                let found = call.backward_along(point(), moved, change.as_deref(), &wanted);
                let mut found = found.into_iter();
                let images = found.next().expect("the first operand");
                let images = images.map(|dx| write(dx, call.images(), &device).cast(*dtype));
                StackDirection { images, blocks: tangents(found.flatten(), blocks, &device) }
            }
        }
    }
}

/// Four tensors for each block, without the vectors that it lacks, in their element types.
fn tangents<B: Backend>(
    mut found: impl Iterator<Item = Vec<f32>>,
    blocks: &[ConvBlock<B>],
    device: &B::Device,
) -> Vec<BlockTangent<B>> {
    let mut next = || found.next().expect("four tensors a block");
    let block = |block: &ConvBlock<B>| {
        let dims = block.weight.dims();
        let weight = write(next(), dims, device).cast(block.weight.dtype());
        let [bias, gamma, beta] = [&block.bias, &block.gamma, &block.beta].map(|vector| {
            let found = next();
            let written = |like: &Tensor<B, 1>| write(found, [dims[0]], device).cast(like.dtype());
            vector.as_ref().map(written)
        });
        BlockTangent { weight, bias, gamma, beta }
    };
    blocks.iter().map(block).collect()
}

/// Whether the direction has the shapes of what moves.
fn fits<B: Backend>(
    images: &Tensor<B, 4>,
    blocks: &[ConvBlock<B>],
    direction: &StackDirection<B>,
) -> Result<(), StackError> {
    let same = |name, wanted: Vec<usize>, found: Vec<usize>| {
        if wanted == found { Ok(()) } else { Err(StackError::Direction { name, wanted, found }) }
    };
    if let Some(moved) = &direction.images {
        same("the images", images.dims().to_vec(), moved.dims().to_vec())?;
    }
    same("the blocks", vec![blocks.len()], vec![direction.blocks.len()])?;
    for (block, moved) in blocks.iter().zip(&direction.blocks) {
        same("a weight", block.weight.dims().to_vec(), moved.weight.dims().to_vec())?;
        let pairs = [
            ("a bias", &block.bias, &moved.bias),
            ("a gamma", &block.gamma, &moved.gamma),
            ("a beta", &block.beta, &moved.beta),
        ];
        for (name, vector, moved) in pairs {
            let Some(moved) = moved else { continue };
            let wanted = vector.as_ref().map_or(Vec::new(), |vector| vector.dims().to_vec());
            same(name, wanted, moved.dims().to_vec())?;
        }
    }
    Ok(())
}
