//! One whole training step of a prototypical network: episode, forward, backward, Adam.

use burn::backend::{Autodiff, Flex};
use burn::optim::Optimizer;
use burn::tensor::backend::Backend;
use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, Criterion, criterion_group, criterion_main};
use fewshot::data::ImageShape;
use fewshot::kernels::with_reference;
use fewshot::learners::MetaGradients;
use fewshot::precision::LossScale;
use fewshot::prelude::*;

type B = Autodiff<Flex>;

/// What a step is timed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernels {
    Fused,
    /// Plain Burn operations.
    Reference,
}

fn train_step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("train_step");
    group.sample_size(10);
    let glyphs = Glyphs::generate(&GlyphsConfig::default()).train;
    let colour = stripes(ImageShape::new(3, 84, 84));
    let (omniglot, mini_imagenet) = (Conv4Config::omniglot(), Conv4Config::mini_imagenet());
    let five_shot = Protocol::new(5, 5);
    step(&mut group, Kernels::Fused, &glyphs, five_shot, &omniglot);
    step(&mut group, Kernels::Reference, &glyphs, five_shot, &omniglot);
    for ways in [20, 60] {
        let protocol = Protocol::new(ways, 1).with_queries(5);
        step(&mut group, Kernels::Fused, &glyphs, protocol, &omniglot);
    }
    // The reference of 30 ways would take minutes and gigabytes.
    step(&mut group, Kernels::Fused, &colour, Protocol::new(30, 1), &mini_imagenet);
    let small = Protocol::new(5, 1).with_queries(5);
    step(&mut group, Kernels::Fused, &colour, small, &mini_imagenet);
    step(&mut group, Kernels::Reference, &colour, small, &mini_imagenet);
    group.finish();
}

fn step(
    group: &mut BenchmarkGroup<'_, WallTime>,
    kernels: Kernels,
    images: &ImageSet,
    protocol: Protocol,
    encoder: &Conv4Config,
) {
    let device = Default::default();
    B::seed(&device, 1);
    let sampler = images.sampler(protocol, 1).expect("the protocol fits the images");
    let learner = ProtoNet::<B, _>::new(encoder.init(&device));
    let mut optimizer = Adam::new().init();
    let mut index = 0;
    let mut work = |learner: ProtoNet<B, _>| {
        index += 1;
        let batch = sampler.batch::<B>([index], &device);
        let MetaGradients { gradients, .. } = learner.meta_gradients(&batch, LossScale::ONE);
        let stepped = optimizer.step(1e-3, learner, gradients.into_parts().0);
        B::sync(&device).expect("the device answers");
        stepped
    };
    let side = encoder.image[1];
    let name = match kernels {
        Kernels::Fused => "fused",
        Kernels::Reference => "reference",
    };
    group.bench_function(format!("flex/{name}/{side}x{side} {protocol}"), |bencher| {
        bencher.iter_batched(
            || learner.clone(),
            |learner| match kernels {
                Kernels::Fused => work(learner),
                Kernels::Reference => with_reference(|| work(learner)),
            },
            BatchSize::PerIteration,
        );
    });
}

/// Sixty classes of twenty images, whose content does not matter here.
fn stripes(shape: ImageShape) -> ImageSet {
    let (classes, each) = (60, 20);
    let pixels: Vec<u8> = (0..classes * each * shape.values())
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let names = (0..classes).map(|class| (class.to_string(), each));
    ImageSet::new(shape, pixels, names).expect("as many pixels as the images have")
}

criterion_group!(benches, train_step);
criterion_main!(benches);
