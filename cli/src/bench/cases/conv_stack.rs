use burn::backend::Autodiff;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Tensor};
use fewshot::kernels::{
    ConvBlock, Moments, Precision, Route, StackOptions, Statistics, conv_stack,
};
use fewshot::models::{Conv4Config, CostModel};

use super::case::{Case, Load, Pass, Scale, sides};

const BLOCKS: usize = 4;
const CHANNELS: usize = 64;

const BATCH: &str = "batch";
const BATCH_BF16: &str = "batch bf16";

pub(super) fn cases<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let [small, large, colour] =
        scale.choose([[100, 1, 28, 28], [360, 1, 28, 28], [60, 3, 84, 84]], [[2, 1, 16, 16]; 3]);
    let mut cases = vec![
        forward::<B::InnerBackend>(small, device),
        both::<B>(small, "running", device),
        both::<B>(small, BATCH, device),
        both::<B>(large, BATCH, device),
        both::<B>(colour, BATCH, device),
    ];
    if Precision::MixedBf16.check::<B>(device).is_ok() {
        cases.extend([small, colour].map(|shape| both::<B>(shape, BATCH_BF16, device)));
    }
    let [few, more] = scale.choose([[5, 1, 28, 28], [25, 1, 28, 28]], [[2, 1, 16, 16]; 2]);
    cases.extend([few, more].map(|shape| second_order::<B>(shape, device)));
    cases
}

fn forward<B: Backend>(shape: [usize; 4], device: &B::Device) -> Case {
    let make = move |device: &B::Device| {
        let images = Tensor::<B, 4>::random(shape, Distribution::Default, device);
        (images, blocks(shape[1], device), running(device))
    };
    case::<B, _>(shape, "running", Pass::Forward, device, make, |(images, blocks, moments)| {
        conv_stack(images.clone(), blocks, moments.clone(), StackOptions::default());
    })
}

fn both<B: AutodiffBackend>(shape: [usize; 4], variant: &'static str, device: &B::Device) -> Case {
    let make = move |device: &B::Device| {
        let images = Tensor::<B, 4>::random(shape, Distribution::Default, device);
        let statistics = if variant == "running" { running(device) } else { Statistics::Batch };
        (images, tracked_blocks(shape[1], device), statistics)
    };
    let precision = if variant == BATCH_BF16 { Precision::MixedBf16 } else { Precision::F32 };
    let pass = Pass::ForwardBackward;
    case::<B, _>(shape, variant, pass, device, make, move |(images, blocks, statistics)| {
        let options = StackOptions { precision, ..Default::default() };
        let output = conv_stack(images.clone(), blocks, statistics.clone(), options);
        let _gradients = output.features.sum().backward();
    })
}

/// The gradient of the sum of the squares of the weights' gradients, as second-order meta-learning differentiates.
fn second_order<B: AutodiffBackend>(shape: [usize; 4], device: &B::Device) -> Case {
    let make = move |device: &B::Device| {
        let images = Tensor::<B, 4>::random(shape, Distribution::Default, device);
        (images, tracked_blocks::<B>(shape[1], device))
    };
    case::<B, _>(shape, BATCH, Pass::SecondOrder, device, make, |(images, blocks)| {
        let lifted: Vec<_> = blocks.iter().map(lift).collect();
        let (images, options) = (Tensor::from_inner(images.clone()), StackOptions::default());
        let output = conv_stack(images, &lifted, Statistics::Batch, options);
        let first = output.features.sum().backward();
        let squares = lifted.iter().filter_map(|block| block.weight.grad(&first));
        let squares = squares.map(|gradient| (gradient.clone() * gradient).sum());
        let _gradients = Tensor::cat(squares.collect(), 0).sum().backward();
    })
}

/// The block as leaves of a second level of autodiff.
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

fn case<B: Backend, S: 'static>(
    shape: [usize; 4],
    variant: &'static str,
    pass: Pass,
    device: &B::Device,
    make: impl Fn(&B::Device) -> S + 'static,
    run: impl Fn(&mut S) + 'static,
) -> Case {
    let [n, c, h, w] = shape;
    let (forward, backward) = flops([c, h, w]);
    // A product of the backward pass has two derivatives, and the forward pass is differentiated once more.
    let (each, passes) = match pass {
        Pass::Forward => (forward, 2),
        Pass::SecondOrder => (5.0 * backward - forward, 24),
        _ => (forward + backward, 8),
    };
    let load = Load::products(n as f64 * each, n * passes * outputs([c, h, w]));
    Case::new::<B, _>(["conv_stack", variant], sides(shape), (pass, load), device, make, run)
}

fn blocks<B: Backend>(channels: usize, device: &B::Device) -> Vec<ConvBlock<B>> {
    let normal = Distribution::Normal(0.0, 0.1);
    let block = |from| ConvBlock {
        weight: Tensor::random([CHANNELS, from, 3, 3], normal, device),
        bias: None,
        gamma: Some(Tensor::ones([CHANNELS], device)),
        beta: Some(Tensor::zeros([CHANNELS], device)),
        stride: 1,
        pool: true,
    };
    [channels, CHANNELS, CHANNELS, CHANNELS].map(block).into()
}

fn tracked_blocks<B: AutodiffBackend>(channels: usize, device: &B::Device) -> Vec<ConvBlock<B>> {
    let tracked = |block: ConvBlock<B>| ConvBlock {
        weight: block.weight.require_grad(),
        gamma: block.gamma.map(Tensor::require_grad),
        beta: block.beta.map(Tensor::require_grad),
        ..block
    };
    blocks(channels, device).into_iter().map(tracked).collect()
}

fn running<B: Backend>(device: &B::Device) -> Statistics<B> {
    let moments = Moments {
        mean: Tensor::zeros([CHANNELS], device),
        variance: Tensor::ones([CHANNELS], device),
    };
    Statistics::Running(vec![moments; BLOCKS])
}

/// Operations for an image, forward and backward: a block's convolution forward, as much again for the gradient of
/// its weight and, but for the first block, of its input.
pub(super) fn flops(image: [usize; 3]) -> (f64, f64) {
    let [channels, height, width] = image;
    let forward = 2.0 * Conv4Config::new(image).cost(1, Route::Reference).macs as f64;
    let first = 2 * 9 * channels * CHANNELS * height * width;
    (forward, 2.0 * forward - first as f64)
}

/// Values of the maps that the convolutions of an image write. They are read once for the norm; in training seven
/// times: for moments and norm, and backward for sums, the map's gradient and both convolutions.
pub(super) fn outputs([_, height, width]: [usize; 3]) -> usize {
    (0..BLOCKS).map(|block| CHANNELS * (height >> block) * (width >> block)).sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn convolutions_are_counted_as_direct_ones() {
        let blocks = [18 * 64 * 28 * 28, 18 * 64 * 64 * 14 * 14, 18 * 64 * 64 * 49, 18 * 4096 * 9];
        let sum = blocks.iter().sum::<usize>() as f64;
        assert_eq!(super::flops([1, 28, 28]), (sum, 2.0 * sum - blocks[0] as f64));
        assert_eq!(super::outputs([1, 28, 28]), 64 * (28 * 28 + 14 * 14 + 7 * 7 + 3 * 3));
    }
}
