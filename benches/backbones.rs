//! Milliseconds a picture: pretrained networks embed 224x224, ResNet-12 learns from 84x84. `benches/backbones.py` does the same by
//! PyTorch, ONNX Runtime and OpenVINO. Names as arguments leave out the others.

use std::time::{Duration, Instant};

use burn::backend::{Autodiff, Flex};
use burn::tensor::{Tensor, backend::Backend};
use fewshot::adapted::PretrainedBackbone;
use fewshot::models::{
    BnStatistics, EfficientNetLiteConfig, Encoder, Pretrained, ResNet12Config, ResNetConfig,
    VitConfig,
};

/// Networks that embed.
const NAMES: [&str; 5] = ["efficientnet-lite0", "dinov2-s", "clip-b32", "resnet18", "resnet50"];

/// As in the command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How much is measured.
struct Scale {
    batches: &'static [usize],
    rounds: usize,
    least: Duration,
}

impl Scale {
    /// The whole, or, where cargo only tests that benches run, something small.
    fn asked() -> Self {
        match std::env::args().any(|argument| argument == "--bench") {
            true => Self { batches: &[1, 32], rounds: 7, least: Duration::from_secs(1) },
            false => Self { batches: &[1], rounds: 1, least: Duration::ZERO },
        }
    }

    /// Milliseconds of the rounds: more of them, if they are short, so that they fill a second.
    fn print(&self, name: &str, batch: usize, mut work: impl FnMut()) {
        work();
        let (begin, mut times) = (Instant::now(), Vec::new());
        while times.len() < self.rounds || begin.elapsed() < self.least {
            let start = Instant::now();
            work();
            times.push(1e3 * start.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let [least, median] = [0, times.len() / 2].map(|at| times[at] / batch as f64);
        println!("{name:<24}{batch:>6}{least:>12.2}{median:>12.2}");
    }
}

/// A network with weights that are drawn, loaded as published ones are.
fn pretrained<M: Pretrained<Flex>>(name: &str, network: M) -> PretrainedBackbone<Flex> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("weights.safetensors");
    network.save_weights(&file).expect("weights are written");
    PretrainedBackbone::load(name, file, &Default::default()).expect("weights are read")
}

/// One backward pass of the mean square of the features.
fn learn(network: &fewshot::models::ResNet12<Autodiff<Flex>>, images: Tensor<Autodiff<Flex>, 4>) {
    let features = network.encode(images, BnStatistics::Track);
    let gradients = features.powi_scalar(2).mean().backward();
    std::hint::black_box(gradients);
}

fn main() {
    fewshot_kernels::keep_freed_memory();
    let scale = Scale::asked();
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    let device = Default::default();
    println!("{:<24}{:>6}{:>12}{:>12}", "ms a picture", "batch", "least", "median");
    for name in NAMES.into_iter().filter(|name| wanted(name)) {
        let backbone = match name {
            "dinov2-s" => pretrained(name, VitConfig::dinov2_s14().init::<Flex>(&device)),
            "clip-b32" => pretrained(name, VitConfig::clip_b32().init::<Flex>(&device)),
            "resnet18" => pretrained(name, ResNetConfig::resnet18().init::<Flex>(&device)),
            "resnet50" => pretrained(name, ResNetConfig::resnet50().init::<Flex>(&device)),
            _ => pretrained(name, EfficientNetLiteConfig::new().init::<Flex>(&device)),
        };
        for &batch in scale.batches {
            let pixel = |at: usize| (at.wrapping_mul(2_654_435_761) >> 13) as u8;
            let images = (0..batch * 3 * 224 * 224).map(|at| f32::from(pixel(at)) / 128.0 - 1.0);
            let images: Vec<f32> = images.collect();
            scale.print(name, batch, || {
                std::hint::black_box(backbone.embed_prepared(images.clone()));
            });
        }
    }
    if wanted("resnet12-training") {
        let batch = *scale.batches.last().expect("a size");
        Autodiff::<Flex>::seed(&device, 1);
        let network = ResNet12Config::new().init(&device);
        let images = Tensor::random(
            [batch, 3, 84, 84],
            burn::tensor::Distribution::Normal(0.0, 1.0),
            &device,
        );
        scale.print("resnet12-training", batch, || learn(&network, images.clone()));
    }
}
