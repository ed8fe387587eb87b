//! The cases of `fewshot bench kernels` by criterion: fused on Flex, beside their references.

use burn::backend::{Autodiff, Flex};
use clap::ValueEnum;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fewshot::kernels::with_reference;
use mimalloc::MiMalloc;

#[path = "../src/bench/cases/mod.rs"]
mod cases;

use cases::{Case, Load, Operation, Scale};

/// The command's.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn kernels(criterion: &mut Criterion) {
    // Where cargo only tests that benches run, something small.
    let measures = std::env::args().any(|word| word == "--bench");
    let scale = if measures { Scale::Full } else { Scale::Quick };
    for operation in Operation::value_variants() {
        for case in operation.cases::<Autodiff<Flex>>(scale, &Default::default()) {
            bench(criterion, case);
        }
    }
}

fn bench(criterion: &mut Criterion, case: Case) {
    let Case { operation, shape, variant, pass, load, has_reference, mut work } = case;
    let mut group = criterion.benchmark_group(operation);
    let amount = load.amount() as u64;
    group.sample_size(10).throughput(match load {
        Load::Products { .. } => Throughput::Elements(amount),
        Load::Bytes(_) => Throughput::Bytes(amount),
    });
    let name = format!("{shape} {variant} {pass}");
    group.bench_function(format!("flex/fused/{name}"), |bencher| bencher.iter(&mut work));
    if has_reference {
        group.bench_function(format!("flex/reference/{name}"), |bencher| {
            bencher.iter(|| with_reference(&mut work));
        });
    }
}

criterion_group!(benches, kernels);
criterion_main!(benches);
