//! Optimizer steps over all parameters of a network, fused beside their references and a copy.

use std::hint::black_box;

use burn::backend::Flex;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Distribution, Tensor};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fewshot_kernels::optim_step::{Momentum, WeightDecay};
use fewshot_kernels::{StepRule, StepState, StepTensors, grad_stats, optim_step, with_reference};
use rayon::prelude::*;

type B = Flex;

/// Four blocks of a convolution of 64 filters with its bias, and a batch-norm.
fn conv4() -> Vec<usize> {
    [1, 64, 64, 64].into_iter().flat_map(|channels| [64 * channels * 9, 64, 64, 64]).collect()
}

/// Four blocks of three convolutions and a shortcut, each with a batch-norm.
fn resnet12() -> Vec<usize> {
    let blocks = [(3, 64), (64, 160), (160, 320), (320, 640)];
    let convolutions = blocks.into_iter().flat_map(|(from, to)| {
        [from * to * 9, to * to * 9, to * to * 9, from * to].into_iter().map(move |n| [n, to, to])
    });
    convolutions.flatten().collect()
}

fn rules() -> [(&'static str, StepRule); 5] {
    let sgd = |momentum| StepRule::Sgd { momentum, weight_decay: WeightDecay::NONE };
    let momentum = Momentum { factor: 0.9, dampening: 0.0, nesterov: false };
    let (beta_1, beta_2) = (0.9, 0.999);
    let adam = |weight_decay| StepRule::Adam { beta_1, beta_2, epsilon: 1e-8, weight_decay };
    [
        ("sgd", sgd(None)),
        ("momentum", sgd(Some(momentum))),
        ("adam", adam(WeightDecay::NONE)),
        ("adam_w", adam(WeightDecay::Decoupled(0.01))),
        ("lamb", StepRule::Lamb { beta_1, beta_2, epsilon: 1e-6, weight_decay: 0.01 }),
    ]
}

fn tensors(sizes: &[usize], scale: f64) -> Vec<FloatTensor<B>> {
    let normal = Distribution::Normal(0.0, scale);
    let tensor = |&size| Tensor::<B, 1>::random([size], normal, &Default::default());
    sizes.iter().map(tensor).map(|tensor| tensor.into_primitive().tensor()).collect()
}

/// Steps that each go on from the one before.
struct Steps {
    rule: StepRule,
    gradients: Vec<FloatTensor<B>>,
    states: Vec<(FloatTensor<B>, StepState<FloatTensor<B>>)>,
}

impl Steps {
    fn new(rule: StepRule, sizes: &[usize]) -> Self {
        let fresh = |parameter| (parameter, StepState::default());
        let states = tensors(sizes, 0.05).into_iter().map(fresh).collect();
        Self { rule, gradients: tensors(sizes, 1e-3), states }
    }

    fn step(&mut self) {
        let of = self.states.drain(..).zip(&self.gradients);
        let of = of.map(|((parameter, state), gradient)| StepTensors {
            parameter,
            gradient: gradient.clone(),
            state,
        });
        let moved = optim_step::<B>(of.collect(), &self.rule, 1e-6);
        self.states.extend(moved.into_iter().map(|one| (one.parameter, one.state)));
        B::sync(&Default::default()).expect("the device answers");
    }
}

fn steps(criterion: &mut Criterion) {
    B::seed(&Default::default(), 1);
    for (name, sizes) in [("conv4", conv4()), ("resnet12", resnet12()), ("50M", vec![50_000_000])] {
        let floats: usize = sizes.iter().sum();
        let mut group = criterion.benchmark_group(format!("optim_step/{name}"));
        group.sample_size(10);
        group.throughput(Throughput::Bytes(8 * floats as u64));
        let (from, mut to) = (vec![1f32; floats], vec![2f32; floats]);
        group.bench_function("copy", |bencher| {
            bencher.iter(|| {
                let pieces = to.par_chunks_mut(1 << 16).zip(from.par_chunks(1 << 16));
                pieces.for_each(|(to, from)| to.copy_from_slice(from));
                black_box(&mut to);
            });
        });
        for (rule_name, rule) in rules() {
            // Parameter, gradient and what is remembered; all but the gradient are written.
            let streams = 3 + 2 * rule.remembers() as u64;
            group.throughput(Throughput::Bytes(4 * streams * floats as u64));
            let mut run = Steps::new(rule, &sizes);
            group.bench_function(BenchmarkId::new(rule_name, "flex/fused"), |bencher| {
                bencher.iter(|| run.step());
            });
            group.bench_function(BenchmarkId::new(rule_name, "flex/reference"), |bencher| {
                bencher.iter(|| with_reference(|| run.step()));
            });
        }
        group.finish();
    }
}

fn statistics(criterion: &mut Criterion) {
    for (name, sizes) in [("conv4", conv4()), ("resnet12", resnet12()), ("50M", vec![50_000_000])] {
        let mut group = criterion.benchmark_group(format!("grad_stats/{name}"));
        group.sample_size(10);
        group.throughput(Throughput::Bytes(4 * sizes.iter().sum::<usize>() as u64));
        let gradients = tensors(&sizes, 1e-3);
        let norm = || grad_stats::<B>(gradients.clone(), 1.0).1;
        group.bench_function("flex/fused", |bencher| bencher.iter(norm));
        group.bench_function("flex/reference", |bencher| bencher.iter(|| with_reference(norm)));
        group.finish();
    }
}

criterion_group!(benches, steps, statistics);
criterion_main!(benches);
