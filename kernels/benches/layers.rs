//! Single layers, forward and backward, fused beside their references; of depthwise convolutions the forward pass.

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use criterion::{Criterion, criterion_group, criterion_main};
use fewshot_kernels::{
    FusedConvOptions, LinearLayer, NormStatistics, Precision, batch_norm, conv2d, depthwise_conv2d,
    global_avg_pool, linear, linear_stack, max_pool, norm_relu, with_reference,
};

type B = Autodiff<Flex>;

fn tracked<const D: usize>(shape: [usize; D]) -> Tensor<B, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 0.1), &Default::default()).require_grad()
}

/// Forward and backward of `layer` on `x`, fused and in plain Burn operations.
fn forward_backward<const D: usize, const E: usize>(
    criterion: &mut Criterion,
    name: &str,
    x: Tensor<B, D>,
    layer: impl Fn(Tensor<B, D>) -> Tensor<B, E>,
) {
    let (device, shape) = (x.device(), x.dims());
    let work = || {
        let gradients = layer(x.clone()).sum().backward();
        B::sync(&device).expect("the device answers");
        gradients
    };
    let mut group = criterion.benchmark_group(format!("{name}/forward_backward"));
    group.sample_size(10);
    group.bench_function(format!("flex/fused/{shape:?}"), |bencher| bencher.iter(work));
    group.bench_function(format!("flex/reference/{shape:?}"), |bencher| {
        bencher.iter(|| with_reference(work));
    });
    group.finish();
}

fn layers(criterion: &mut Criterion) {
    B::seed(&Default::default(), 1);
    for (name, kernel, stride, padding) in
        [("conv2d 3x3", 3, 1, 1), ("conv2d 3x3 stride 2", 3, 2, 1), ("conv2d 1x1", 1, 1, 0)]
    {
        let weight = tracked([64, 64, kernel, kernel]);
        forward_backward(criterion, name, tracked([60, 64, 14, 14]), |x| {
            conv2d(x, weight.clone(), None, stride, padding)
        });
    }
    let map = || tracked([100, 64, 28, 28]);
    let (gamma, beta) = (tracked([64]), tracked([64]));
    forward_backward(criterion, "batch_norm", map(), |x| {
        let affine = (Some(gamma.clone()), Some(beta.clone()));
        batch_norm(x, affine.0, affine.1, NormStatistics::Batch, 1e-5).0
    });
    forward_backward(criterion, "norm_relu with a pool", map(), |x| {
        let affine = (Some(gamma.clone()), Some(beta.clone()));
        norm_relu(x, affine.0, affine.1, NormStatistics::Batch, 1e-5, true).0
    });
    forward_backward(criterion, "max_pool", map(), max_pool::<B>);
    forward_backward(criterion, "global_avg_pool", map(), global_avg_pool::<B>);
    let widths = [1, 40, 40, 1];
    let layer = |sides: &[usize]| LinearLayer {
        weight: tracked([25 * sides[0], sides[1]]),
        bias: Some(tracked([25 * sides[1]])),
    };
    let stack: Vec<_> = widths.windows(2).map(layer).collect();
    forward_backward(criterion, "linear_stack", tracked([25, 10, 1]), |x| {
        linear_stack(x, &stack, Precision::F32)
    });
    let (weight, bias) = (tracked([1600, 64]), tracked([64]));
    forward_backward(criterion, "linear", tracked([480, 1600]), |x| {
        linear(x, weight.clone(), Some(bias.clone()))
    });
}

/// Windows of EfficientNet-Lite0.
fn depthwise(criterion: &mut Criterion) {
    let drawn = |shape| {
        Tensor::<Flex, 4>::random(shape, Distribution::Normal(0.0, 1.0), &Default::default())
    };
    for (shape, window, stride) in
        [([1, 96, 112, 112], 3, 2), ([1, 144, 56, 56], 3, 1), ([1, 672, 14, 14], 5, 1)]
    {
        let (x, filters) = (drawn(shape), drawn([shape[1], 1, window, window]));
        let map = [1.0, 0.0].map(|value| Tensor::full([shape[1]], value, &x.device()));
        let options = FusedConvOptions { stride, padding: [window / 2; 4], bounds: [0.0, 6.0] };
        let work = || depthwise_conv2d(x.clone(), filters.clone(), map.clone(), options);
        let mut group = criterion.benchmark_group("depthwise_conv2d");
        let name = format!("{shape:?} by {window}, stride {stride}");
        group.bench_function(format!("flex/fused/{name}"), |bencher| bencher.iter(work));
        group.bench_function(format!("flex/reference/{name}"), |bencher| {
            bencher.iter(|| with_reference(work));
        });
        group.finish();
    }
}

criterion_group!(benches, layers, depthwise);
criterion_main!(benches);
