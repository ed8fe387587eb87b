//! Training of whole networks: the losses of PyTorch step after step, or milliseconds and memory of a step.
//!
//! `cargo bench --bench train_networks -- losses FOLDER [NAME...]` takes the steps that `benches/train_networks.py` took in that
//! folder. `-- speed STEPS [NAME...]` measures; the same program of Python does likewise by PyTorch.

use std::fs;
use std::path::Path;
use std::time::Instant;

use burn::backend::{Autodiff, Flex};
use burn::module::{AutodiffModule, ModuleDisplay, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor, TensorData};
use fewshot::models::{
    BnStatistics, Classifier, EfficientNetLiteConfig, Encoder, Pretrained, ResNet12Config,
    ResNetConfig, VitConfig, WideResNetConfig,
};
use fewshot::optim::Sgd;
use safetensors::SafeTensors;

/// As in the command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type B = Autodiff<Flex>;

const CLASSES: usize = 64;
const RATE: f64 = 1e-3;
const NAMES: [&str; 5] =
    ["resnet12", "wide-resnet-28-10", "resnet18", "efficientnet-lite0", "dinov2-s"];

/// A network that is trained here.
trait Trained: Encoder<B> + Pretrained<B> + AutodiffModule<B, InnerModule: ModuleDisplay> {}

impl<E> Trained for E where
    E: Encoder<B> + Pretrained<B> + AutodiffModule<B, InnerModule: ModuleDisplay>
{
}

/// One batch, and its labels.
struct Batch {
    images: Tensor<B, 4>,
    labels: Tensor<B, 1, Int>,
}

impl Batch {
    fn new(images: Tensor<B, 4>) -> Self {
        let labels: Vec<i32> =
            (0..images.dims()[0]).map(|index| (index % CLASSES) as i32).collect();
        Self { labels: Tensor::from_ints(labels.as_slice(), &images.device()), images }
    }
}

/// A network with its optimizer.
struct Training<E, O> {
    network: Option<Classifier<B, E>>,
    optimizer: O,
    batch: Batch,
}

impl<E: Trained, O: Optimizer<Classifier<B, E>, B>> Training<E, O> {
    /// The loss before a step, which is taken.
    fn step(&mut self) -> f32 {
        let network = self.network.take().expect("there between steps");
        let logits = network.forward(self.batch.images.clone(), BnStatistics::Track);
        let loss = CrossEntropyLossConfig::new().init(&logits.device());
        let loss = loss.forward(logits, self.batch.labels.clone());
        let value = loss.clone().into_scalar();
        let gradients = GradientsParams::from_grads(loss.backward(), &network);
        self.network = Some(self.optimizer.step(RATE, network, gradients));
        value
    }
}

fn training<E: Trained>(
    network: Classifier<B, E>,
    batch: Batch,
) -> Training<E, impl Optimizer<Classifier<B, E>, B>> {
    let sgd = Sgd::new().with_momentum(0.9).with_weight_decay(5e-4);
    Training { network: Some(network), optimizer: sgd.init(), batch }
}

/// The job of this run.
enum Task<'a> {
    /// Compares losses with those in the folder.
    Losses(&'a Path),
    /// Times so many steps after some that warm up.
    Speed { warm_up: usize, steps: usize },
}

impl Task<'_> {
    fn run<E: Trained>(&self, name: &str, encoder: E, features: usize, [batch, side]: [usize; 2]) {
        match self {
            Task::Losses(folder) => compare(folder, name, encoder, features),
            &Task::Speed { warm_up, steps } => {
                let device = Default::default();
                let network = Classifier::new(encoder, features, CLASSES, &device);
                let normal = Distribution::Normal(0.0, 1.0);
                let images = Tensor::random([batch, 3, side, side], normal, &device);
                let mut training = training(network, Batch::new(images));
                time(name, [warm_up, steps], || training.step());
            }
        }
    }
}

fn time(name: &str, [warm_up, steps]: [usize; 2], mut step: impl FnMut() -> f32) {
    let before = fresh_peak();
    let mut times = Vec::new();
    for index in 0..warm_up + steps {
        let start = Instant::now();
        let loss = step();
        assert!(loss.is_finite(), "{name} learns");
        if index >= warm_up {
            times.push(1e3 * start.elapsed().as_secs_f64());
        }
    }
    times.sort_by(f64::total_cmp);
    let [least, median] = [0, times.len() / 2].map(|at| times[at]);
    let memory = megabytes("VmHWM") - before;
    println!("{name:<20}{least:>12.0}{median:>12.0}{memory:>12.0}");
}

/// Megabytes of this process: `VmRSS` those now, `VmHWM` the peak since [`fresh_peak`]. Linux alone tells.
fn megabytes(field: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap_or_default();
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<f64>().ok());
    kilobytes.map_or(f64::NAN, |kilobytes| kilobytes / 1024.0)
}

/// Begins a new peak, and tells the memory there is.
fn fresh_peak() -> f64 {
    // Without the right to do so the peak is that of the whole run.
    let _ = fs::write("/proc/self/clear_refs", "5");
    megabytes("VmRSS")
}

fn compare<E: Trained>(folder: &Path, name: &str, encoder: E, features: usize) {
    let file = |ending: &str| folder.join(format!("{name}.{ending}"));
    let encoder = encoder.load_weights(&file("safetensors")).expect("weights are read");
    let bytes = fs::read(file("inputs.safetensors")).expect("inputs are read");
    let inputs = SafeTensors::deserialize(&bytes).expect("a file of tensors");
    let mut network = Classifier::new(encoder, features, CLASSES, &Default::default());
    let weight: Tensor<B, 2> = tensor(&inputs, "weight");
    network.head.weight = Param::from_tensor(weight.transpose());
    network.head.bias = Some(Param::from_tensor(tensor(&inputs, "bias")));
    let losses = fs::read(file("json")).expect("losses are read");
    let losses: Vec<f64> = serde_json::from_slice(&losses).expect("a list of losses");
    let mut training = training(network, Batch::new(tensor(&inputs, "images")));
    let mut largest = 0f64;
    for (step, expected) in losses.iter().enumerate() {
        let loss = f64::from(training.step());
        let off = (loss / expected - 1.0).abs();
        largest = largest.max(off);
        println!("{name:<20}{step:>4}{expected:>12.6}{loss:>12.6}{off:>12.1e}");
    }
    println!("{name:<20} is off by at most {largest:.1e}");
}

fn tensor<const D: usize>(file: &SafeTensors<'_>, name: &str) -> Tensor<B, D> {
    let view = file.tensor(name).expect("a tensor of this name");
    let values = view.data().chunks_exact(4);
    let values = values.map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")));
    let data = TensorData::new(values.collect::<Vec<_>>(), view.shape().to_vec());
    Tensor::from_data(data, &Default::default())
}

fn main() {
    fewshot_kernels::keep_freed_memory();
    let measures = std::env::args().any(|argument| argument == "--bench");
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (task, names) = match &words[..] {
        ["losses", folder, names @ ..] => (Task::Losses(Path::new(folder)), names),
        ["speed", steps, names @ ..] => {
            (Task::Speed { warm_up: 2, steps: steps.parse().expect("a number of steps") }, names)
        }
        _ if measures => {
            println!("train_networks: losses FOLDER [NAME...], or speed STEPS [NAME...]");
            return;
        }
        // Where cargo only tests that benches run.
        _ => (Task::Speed { warm_up: 0, steps: 1 }, &["resnet12"][..]),
    };
    if let Task::Speed { .. } = task {
        println!("{:<20}{:>12}{:>12}{:>12}", "ms a step", "least", "median", "MB");
    }
    let device = Default::default();
    let names = if names.is_empty() { &NAMES[..] } else { names };
    for &name in names {
        B::seed(&device, 1);
        match name {
            "resnet12" => {
                let config = ResNet12Config::new();
                let size = if measures { [32, 84] } else { [2, 32] };
                task.run(name, config.init(&device), config.features(), size);
            }
            "wide-resnet-28-10" => {
                let config = WideResNetConfig::new();
                task.run(name, config.init(&device), config.features(), [4, 84]);
            }
            "resnet18" => {
                let config = ResNetConfig::resnet18();
                task.run(name, config.init(&device), config.features(), [32, 84]);
            }
            "efficientnet-lite0" => {
                let config = EfficientNetLiteConfig::new();
                task.run(name, config.init(&device), config.features(), [32, 84]);
            }
            "dinov2-s" => {
                let config = VitConfig::dinov2_s14();
                task.run(name, config.init(&device), config.features(), [8, 224]);
            }
            other => panic!("{other} is none of {NAMES:?}"),
        }
    }
}
