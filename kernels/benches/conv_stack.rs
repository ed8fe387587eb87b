//! The convolution stack of Conv-4, forward and backward, fused beside its reference.

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use criterion::{Criterion, criterion_group, criterion_main};
use fewshot_kernels::{ConvBlock, Precision, StackOptions, Statistics, conv_stack, with_reference};

type B = Autodiff<Flex>;

fn blocks(channels: usize) -> Vec<ConvBlock<B>> {
    let device = Default::default();
    let inputs = [channels, 64, 64, 64];
    let block = |from: usize| ConvBlock {
        weight: Tensor::random([64, from, 3, 3], Distribution::Normal(0.0, 0.1), &device)
            .require_grad(),
        bias: None,
        gamma: Some(Tensor::ones([64], &device).require_grad()),
        beta: Some(Tensor::zeros([64], &device).require_grad()),
        stride: 1,
        pool: true,
    };
    inputs.into_iter().map(block).collect()
}

fn forward_backward(criterion: &mut Criterion) {
    let device = Default::default();
    B::seed(&device, 1);
    let mut group = criterion.benchmark_group("conv_stack/forward_backward");
    group.sample_size(10);
    for shape in [[100, 1, 28, 28], [360, 1, 28, 28], [60, 3, 84, 84]] {
        let images = Tensor::<B, 4>::random(shape, Distribution::Default, &device);
        let blocks = blocks(shape[1]);
        let work = |precision| {
            let options = StackOptions { precision, ..Default::default() };
            let output = conv_stack(images.clone(), &blocks, Statistics::Batch, options);
            let gradients = output.features.sum().backward();
            B::sync(&device).expect("the device answers");
            gradients
        };
        for precision in [Precision::F32, Precision::MixedBf16] {
            let name = format!("flex/fused/{}/{shape:?}", precision.dtype());
            group.bench_function(name, |bencher| bencher.iter(|| work(precision)));
        }
        group.bench_function(format!("flex/reference/f32/{shape:?}"), |bencher| {
            bencher.iter(|| with_reference(|| work(Precision::F32)));
        });
    }
    group.finish();
}

/// The block as leaves of a second level of autodiff.
fn lift(block: &ConvBlock<B>) -> ConvBlock<Autodiff<B>> {
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

/// The gradient of the sum of the squares of the weights' gradients, as second-order meta-learning
/// differentiates.
fn second_order(criterion: &mut Criterion) {
    let device = Default::default();
    B::seed(&device, 1);
    let mut group = criterion.benchmark_group("conv_stack/second_order");
    group.sample_size(10);
    for shape in [[5, 1, 28, 28], [25, 1, 28, 28]] {
        let images = Tensor::<B, 4>::random(shape, Distribution::Default, &device);
        let blocks = blocks(shape[1]);
        let work = || {
            let images = Tensor::from_inner(images.clone());
            let lifted: Vec<_> = blocks.iter().map(lift).collect();
            let output = conv_stack(images, &lifted, Statistics::Batch, StackOptions::default());
            let first = output.features.sum().backward();
            let squares = lifted.iter().filter_map(|block| block.weight.grad(&first));
            let squares = squares.map(|gradient| (gradient.clone() * gradient).sum());
            let second = Tensor::cat(squares.collect(), 0).sum().backward();
            B::sync(&device).expect("the device answers");
            second
        };
        group.bench_function(format!("flex/fused/{shape:?}"), |bencher| bencher.iter(work));
        group.bench_function(format!("flex/reference/{shape:?}"), |bencher| {
            bencher.iter(|| with_reference(work));
        });
    }
    group.finish();
}

criterion_group!(benches, forward_backward, second_order);
criterion_main!(benches);
