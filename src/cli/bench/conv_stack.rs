use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Tensor};
use fewshot::kernels::{ConvBlock, Moments, StackOptions, Statistics, conv_stack};

use super::case::{Case, Load, Pass, Reference, Scale};

const BLOCKS: usize = 4;
const CHANNELS: usize = 64;
pub(super) fn cases<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    B::seed(device, 1);
    let [small, large, colour] =
        scale.choose([[100, 1, 28, 28], [360, 1, 28, 28], [60, 3, 84, 84]], [[2, 1, 16, 16]; 3]);
    vec![
        case(small, "running", Pass::Forward, forward::<B::InnerBackend>(small, device)),
        case(small, "running", Pass::ForwardBackward, both::<B>(small, running(device), device)),
        case(small, "batch", Pass::ForwardBackward, both::<B>(small, Statistics::Batch, device)),
        case(large, "batch", Pass::ForwardBackward, both::<B>(large, Statistics::Batch, device)),
        case(colour, "batch", Pass::ForwardBackward, both::<B>(colour, Statistics::Batch, device)),
    ]
}

fn case(
    [n, c, h, w]: [usize; 4],
    variant: &'static str,
    pass: Pass,
    work: Box<dyn FnMut()>,
) -> Case {
    let (forward, backward) = flops([c, h, w]);
    let each = if pass == Pass::Forward { forward } else { forward + backward };
    Case {
        operation: "conv_stack",
        shape: format!("{n}x{c}x{h}x{w}"),
        variant,
        pass,
        load: Load::Flops(n as f64 * each),
        reference: Reference::Beside,
        work,
    }
}

fn forward<B: Backend>(shape: [usize; 4], device: &B::Device) -> Box<dyn FnMut()> {
    let images = Tensor::<B, 4>::random(shape, Distribution::Default, device);
    let (blocks, moments) = (blocks(shape[1], device), running(device));
    let device = device.clone();
    Box::new(move || {
        conv_stack(images.clone(), &blocks, moments.clone(), StackOptions::default());
        B::sync(&device).expect("the device answers");
    })
}

fn both<B: AutodiffBackend>(
    shape: [usize; 4],
    statistics: Statistics<B>,
    device: &B::Device,
) -> Box<dyn FnMut()> {
    let images = Tensor::<B, 4>::random(shape, Distribution::Default, device);
    let tracked = |block: ConvBlock<B>| ConvBlock {
        weight: block.weight.require_grad(),
        gamma: block.gamma.map(Tensor::require_grad),
        beta: block.beta.map(Tensor::require_grad),
        ..block
    };
    let blocks: Vec<_> = blocks(shape[1], device).into_iter().map(tracked).collect();
    let device = device.clone();
    Box::new(move || {
        let output =
            conv_stack(images.clone(), &blocks, statistics.clone(), StackOptions::default());
        let _gradients = output.features.sum().backward();
        B::sync(&device).expect("the device answers");
    })
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

fn running<B: Backend>(device: &B::Device) -> Statistics<B> {
    let moments = Moments {
        mean: Tensor::zeros([CHANNELS], device),
        variance: Tensor::ones([CHANNELS], device),
    };
    Statistics::Running(vec![moments; BLOCKS])
}

/// Of an image, forward and backward: `2 * 9 * c_in * c_out * h * w` a block forward, as much again
/// for the gradient of its weight and, but for the first block, of its input.
pub(super) fn flops([channels, height, width]: [usize; 3]) -> (f64, f64) {
    let (mut from, mut pixels) = (channels, (height, width));
    let (mut forward, mut backward) = (0, 0);
    for block in 0..BLOCKS {
        let convolution = 2 * 9 * from * CHANNELS * pixels.0 * pixels.1;
        forward += convolution;
        backward += if block == 0 { convolution } else { 2 * convolution };
        (from, pixels) = (CHANNELS, (pixels.0 / 2, pixels.1 / 2));
    }
    (forward as f64, backward as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn convolutions_are_counted_as_direct_ones() {
        let blocks = [18 * 64 * 28 * 28, 18 * 64 * 64 * 14 * 14, 18 * 64 * 64 * 49, 18 * 4096 * 9];
        let sum = blocks.iter().sum::<usize>() as f64;
        assert_eq!(flops([1, 28, 28]), (sum, 2.0 * sum - blocks[0] as f64));
    }
}
