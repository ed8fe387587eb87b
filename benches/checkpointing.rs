//! Peak memory and time of the gradient of a prototypical network, kept whole and by segments, in turns: with eight
//! blocks of a Conv-4, with residual networks and with a vision transformer.

use std::time::Instant;

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::Backend;
use fewshot::data::ImageShape;
use fewshot::hardware::{Bytes, Checkpointing, CountingAllocator, MemoryScope, release};
use fewshot::models::{AnyEncoder, EncoderConfig};
use fewshot::precision::LossScale;
use fewshot::prelude::*;

type B = Autodiff<Flex>;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const WAYS: [Checkpointing; 2] = [Checkpointing::Nothing, Checkpointing::Segments];

/// What one way took, round after round.
#[derive(Default)]
struct Taken {
    peak: Bytes,
    seconds: Vec<f64>,
}

fn deep(side: usize, channels: usize) -> Conv4Config {
    Conv4Config::new([3, side, side]).with_channels(channels).with_blocks(8).with_halve_every(2)
}

fn main() {
    // The whole, or, where cargo only tests that benches run, something small.
    let named = |name, side| EncoderConfig::named(name, [3, side, side]).expect("a network");
    let (cases, rounds) = match std::env::args().any(|word| word == "--bench") {
        true => {
            let others = [("resnet12", 84), ("wrn-28-10", 32), ("resnet18", 84), ("dinov2-s", 98)];
            let deep: EncoderConfig = deep(84, 64).into();
            let others = others.map(|(name, side)| (named(name, side), 1));
            ([(deep.clone(), 1), (deep, 4)].into_iter().chain(others).collect(), 3)
        }
        false => (vec![(deep(16, 4).into(), 2), (named("resnet10", 16), 1)], 1),
    };
    for (config, tasks) in cases {
        measured(&config, tasks, rounds);
    }
}

fn measured(config: &EncoderConfig, tasks: u64, rounds: usize) {
    let device = Default::default();
    B::seed(&device, 1);
    let encoder = config.init::<B>(&device);
    let [channels, height, width] = config.image();
    let protocol = Protocol::new(5, 1).with_queries(5);
    let sampler = noise(ImageShape::new(channels, height, width))
        .sampler(protocol, 1)
        .expect("the protocol fits the images");
    println!("{}, {height}x{width}, {protocol}", encoder.architecture());
    println!("{:<8}{:<12}{:>12}{:>16}{:>24}", "tasks", "kept", "peak", "median", "least to most");
    print(tasks, &measure(&encoder, &sampler, tasks, rounds));
}

/// A first round warms up and does not count.
fn measure(
    encoder: &AnyEncoder<B>,
    sampler: &EpisodeSampler,
    tasks: u64,
    rounds: usize,
) -> [Taken; 2] {
    let device = Default::default();
    let batch = sampler.batch::<B>(0..tasks, &device);
    let learners = WAYS.map(|way| ProtoNet::new(encoder.clone()).with_checkpointing(way));
    let mut taken = [Taken::default(), Taken::default()];
    for round in 0..=rounds {
        for (learner, taken) in learners.iter().zip(&mut taken) {
            // What fused operations kept for the next call would not be asked for again.
            release::<B>(&device);
            let work = || learner.meta_gradients(&batch, LossScale::ONE);
            let (_, report) = MemoryScope::measure::<B, _>(&device, work);
            let start = Instant::now();
            work();
            B::sync(&device).expect("the device answers");
            if round > 0 {
                taken.seconds.push(start.elapsed().as_secs_f64());
                taken.peak = taken.peak.max(report.peak.expect("an allocator that counts"));
            }
        }
    }
    taken
}

fn print(tasks: u64, taken: &[Taken; 2]) {
    let median = |taken: &Taken| {
        let mut seconds = taken.seconds.clone();
        seconds.sort_unstable_by(f64::total_cmp);
        [seconds[seconds.len() / 2], seconds[0], seconds[seconds.len() - 1]]
    };
    for (name, taken) in ["everything", "segments"].into_iter().zip(taken) {
        let [median, least, most] = median(taken).map(|seconds| 1e3 * seconds);
        let range = format!("{least:.1} to {most:.1} ms");
        println!("{tasks:<8}{name:<12}{:>12}{median:>13.1} ms{range:>24}", taken.peak);
    }
    let [whole, parts] = taken;
    let memory = parts.peak.0 as f64 / whole.peak.0 as f64;
    let time = median(parts)[0] / median(whole)[0];
    println!("segments take {memory:.2} of the memory and {time:.2} times as long");
}

/// Ten classes of ten images, whose content does not matter here.
fn noise(shape: ImageShape) -> ImageSet {
    let (classes, each) = (10, 10);
    let pixels: Vec<_> = (0..classes * each * shape.values())
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let names = (0..classes).map(|class| (class.to_string(), each));
    ImageSet::new(shape, pixels, names).expect("as many pixels as the images have")
}
