//! Episodes a second of heads over embeddings that are there already: 5-way 1-shot, 15 queries a class, 640
//! features. `benches/feature_episodes.py` does the same by easyfsl. The first `tim-gd` has easyfsl's 50 steps.
//! Names of methods as arguments leave out the others.

use burn::backend::Flex;
use fewshot::data::Features;
use fewshot::episode::{FeatureSampler, Protocol};
use fewshot::learners::heads::{AnyHead, Prototypes, TRANSDUCTIVE_HEAD_NAMES, Tim};
use fewshot::train::{FeatureEvaluation, FeatureTest};

/// Classes around points of their own, not below zero, as after a ReLU.
fn drawn(classes: usize) -> Features {
    const LENGTH: usize = 640;
    let mut state = 88_172_645_463_325_252u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    // Nearly normal, with a deviation of 1.
    let mut normal = move || (0..12).map(|_| uniform()).sum::<f32>() - 6.0;
    let mut class = |class: usize| {
        let centre: Vec<f32> = (0..LENGTH).map(|_| normal().abs() * 0.5).collect();
        let value = |at: usize| (centre[at % LENGTH] + 0.8 * normal()).max(0.0);
        (class.to_string(), (0..120 * LENGTH).map(value).collect::<Vec<_>>())
    };
    let classes: Vec<_> = (0..classes).map(&mut class).collect();
    Features::new(LENGTH, classes).expect("rows of the length")
}

fn main() {
    // Episodes of heads that are lowered step by step, and of others. Where cargo only tests that benches run,
    // something small.
    let (classes, [few, more], rounds) = match std::env::args().any(|word| word == "--bench") {
        true => (100, [64, 4096], 3),
        false => (5, [2, 8], 1),
    };
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    let sampler = FeatureSampler::new(drawn(classes), Protocol::new(5, 1), 7).expect("it fits");
    let device = Default::default();
    let print = |episodes: usize, run: &dyn Fn(&FeatureTest) -> FeatureEvaluation| {
        let found: Vec<_> = (0..rounds).map(|_| run(&FeatureTest::new(episodes))).collect();
        let rates: Vec<_> = found.iter().map(|of| format!("{:.0}", of.episodes_per_s)).collect();
        let FeatureEvaluation { method, accuracy, .. } = &found[0];
        println!("{method:<26}{episodes:>8}{:>24}{accuracy:>12.2} %", rates.join(", "));
    };
    println!("{:<26}{:>8}{:>24}{:>14}", "method", "episodes", "episodes/s", "accuracy");
    if wanted("prototypes") {
        print(more, &|test| test.run::<Flex>(&Prototypes::new(), &sampler, &device));
    }
    if wanted("tim-gd") {
        let easyfsl = Tim::easyfsl();
        print(few, &|test| test.run::<Flex>(&easyfsl, &sampler, &device));
    }
    for name in TRANSDUCTIVE_HEAD_NAMES.iter().filter(|name| wanted(name)) {
        let head = AnyHead::<Flex>::with_name(name, [640, 1, 1], &device);
        let head = head.expect("one of the names");
        let episodes = match *name {
            "tim-gd" | "tim-adm" | "transductive-finetuning" => few,
            _ => more,
        };
        print(episodes, &|test| test.run(&head, &sampler, &device));
    }
}
