//! The convolution stack of Conv-4, forward and backward, fused beside its reference.

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use criterion::{Criterion, criterion_group, criterion_main};
use fewshot_kernels::conv_stack::reference;
use fewshot_kernels::{ConvBlock, StackOptions, StackOutput, Statistics, conv_stack};

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

type Stack = fn(Tensor<B, 4>, &[ConvBlock<B>], Statistics<B>, StackOptions) -> StackOutput<B>;

fn forward_backward(criterion: &mut Criterion) {
    let device = Default::default();
    B::seed(&device, 1);
    let mut group = criterion.benchmark_group("conv_stack/forward_backward");
    group.sample_size(10);
    let cases: [(&str, Stack, [usize; 4]); 5] = [
        ("fused", conv_stack::<B>, [100, 1, 28, 28]),
        ("reference", reference::conv_stack::<B>, [100, 1, 28, 28]),
        ("fused", conv_stack::<B>, [120, 1, 28, 28]),
        ("fused", conv_stack::<B>, [360, 1, 28, 28]),
        ("fused", conv_stack::<B>, [60, 3, 84, 84]),
    ];
    for (name, stack, shape) in cases {
        let images = Tensor::<B, 4>::random(shape, Distribution::Default, &device);
        let blocks = blocks(shape[1]);
        group.bench_function(format!("flex/{name}/{shape:?}"), |bencher| {
            bencher.iter(|| {
                let output =
                    stack(images.clone(), &blocks, Statistics::Batch, StackOptions::default());
                let gradients = output.features.sum().backward();
                B::sync(&device).expect("the device answers");
                gradients
            });
        });
    }
    group.finish();
}

criterion_group!(benches, forward_backward);
criterion_main!(benches);
