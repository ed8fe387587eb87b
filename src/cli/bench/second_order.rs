//! The stack under two levels of autodiff, as second-order meta-learning differentiates it.

use burn::backend::Autodiff;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Distribution, Tensor};
use fewshot::kernels::{ConvBlock, StackOptions, Statistics, conv_stack};

use super::case::{Case, Load, Pass, Reference, Scale};
use super::conv_stack::{blocks, flops};

pub(super) fn cases<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    B::seed(device, 1);
    let shapes = scale.choose(vec![[5, 1, 28, 28], [25, 1, 28, 28]], vec![[2, 1, 16, 16]]);
    shapes.into_iter().map(|shape| case::<B>(shape, device)).collect()
}

fn case<B: AutodiffBackend>(shape: [usize; 4], device: &B::Device) -> Case {
    let [n, sides @ ..] = shape;
    let images = Tensor::<B, 4>::random(shape, Distribution::Default, device);
    let tracked = |block: ConvBlock<B>| ConvBlock {
        weight: block.weight.require_grad(),
        gamma: block.gamma.map(Tensor::require_grad),
        beta: block.beta.map(Tensor::require_grad),
        ..block
    };
    let blocks: Vec<_> = blocks(shape[1], device).into_iter().map(tracked).collect();
    let (forward, backward) = flops(sides);
    let device = device.clone();
    Case {
        operation: "second_order",
        shape: shape.map(|side| side.to_string()).join("x"),
        variant: "batch",
        pass: Pass::SecondOrder,
        // The gradient, and the pass along a direction: two convolutions for each of one.
        load: Load::Flops(3.0 * n as f64 * (forward + backward)),
        reference: Reference::Beside,
        work: Box::new(move || {
            let images = Tensor::from_inner(images.clone());
            let lifted: Vec<_> = blocks.iter().map(lift).collect();
            let output = conv_stack(images, &lifted, Statistics::Batch, StackOptions::default());
            let gradients = output.features.sum().backward();
            let squares = lifted.iter().filter_map(|block| block.weight.grad(&gradients));
            let squares = squares.map(|gradient| (gradient.clone() * gradient).sum());
            let _gradients = Tensor::cat(squares.collect(), 0).sum().backward();
            B::sync(&device).expect("the device answers");
        }),
    }
}

/// The block as leaves of a second level.
fn lift<B: AutodiffBackend>(block: &ConvBlock<B>) -> ConvBlock<Autodiff<B>> {
    let vector = |vector: &Option<Tensor<B, 1>>| {
        vector.clone().map(|vector| Tensor::from_inner(vector).require_grad())
    };
    ConvBlock {
        weight: Tensor::from_inner(block.weight.clone()).require_grad(),
        bias: vector(&block.bias),
        gamma: vector(&block.gamma),
        beta: vector(&block.beta),
        stride: block.stride,
        pool: block.pool,
    }
}
