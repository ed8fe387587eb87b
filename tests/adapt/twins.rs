//! Losses of training beside those of plain PyTorch, step by step: `tests/golden/meta_training.py` has made them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor, TensorData};
use fewshot::adapt::{InnerLoop, SecondOrder};
use fewshot::data::DataError;
use fewshot::episode::{Classification, EpisodeBatch, EpisodeTensors, Support, TaskSource};
use fewshot::learners::{Maml, MetaLearner, ProtoNet};
use fewshot::models::{Classifier, Conv4, Conv4Config, Downsampling, Readout};
use fewshot::optim::Adam;
use fewshot::train::{Event, MetaTrainer};
use serde::Deserialize;
use serde_json::Value;

use crate::named::{Values, with_values};

type B = Autodiff<Flex>;
type Network = Classifier<B, Conv4<B>>;

/// Steps of the golden losses, and tasks of each.
const STEPS: usize = 200;
const TASKS: usize = 2;
const CLASSES: usize = 20;
const WAYS: usize = 5;
const SHOTS: usize = 1;
const QUERIES: usize = 3;
/// Cells of a pattern's side, and pixels of an image's.
const CELLS: usize = 4;
const SIDE: usize = 16;
const BLOCKS: usize = 3;
const CHANNELS: usize = 8;
const OUTER_RATE: f64 = 1e-3;
const PATTERNS: u32 = 100;
const CHOICES: u32 = 101;
const NOISE: u32 = 102;

#[derive(Deserialize)]
struct Case {
    downsampling: Downsampling,
    inner_steps: Option<usize>,
    inner_rate: Option<f64>,
    /// Beginning of the names of parameters that inner steps adapt.
    #[serde(default)]
    adapts: String,
    losses: Vec<f64>,
}

fn case(name: &str) -> Case {
    let text = include_str!("../golden/meta_training.json");
    let mut cases: BTreeMap<String, Case> = serde_json::from_str(text).expect("golden losses");
    cases.remove(name).expect(name)
}

fn mix(mut x: u32) -> u32 {
    for (shift, factor) in [(16, 0x7FEB_352D), (15, 0x846C_A68B), (16, 1)] {
        x = (x ^ (x >> shift)).wrapping_mul(factor);
    }
    x
}

/// The number from 0 to 4095 at a place of a stream.
fn draw(stream: u32, place: usize) -> u32 {
    mix(place as u32 ^ mix(stream + 1)) >> 20
}

/// Labelled images of the classes of an episode, `each` of a class, whose noise begins at this image of all.
fn images(classes: &[usize], each: usize, first: usize) -> Vec<f64> {
    let pixel = |image: usize, pixel: usize| {
        let (row, column) = (pixel / SIDE, pixel % SIDE);
        let cell = row * CELLS / SIDE * CELLS + column * CELLS / SIDE;
        let pattern = draw(PATTERNS, classes[image / each] * CELLS * CELLS + cell);
        let noise = draw(NOISE, (first + image) * SIDE * SIDE + pixel);
        f64::from(2 * pattern + 2 * noise) / 16384.0
    };
    let images = 0..classes.len() * each;
    images.flat_map(|image| (0..SIDE * SIDE).map(move |at| pixel(image, at))).collect()
}

/// Episodes as numbers of a precision.
struct Episodes {
    dtype: DType,
}

impl Episodes {
    fn labelled<B: Backend>(
        &self,
        pixels: Vec<f64>,
        each: usize,
        device: &B::Device,
    ) -> (Tensor<B, 5>, Tensor<B, 2, Int>) {
        let tasks = pixels.len() / (WAYS * each * SIDE * SIDE);
        let shape = [tasks, WAYS * each, 1, SIDE, SIDE];
        let images = Tensor::from_data(TensorData::new(pixels, shape), (device, self.dtype));
        let labels = (0..tasks * WAYS * each).map(|at| (at / each % WAYS) as i32).collect();
        let labels = TensorData::new::<i32, _>(labels, [tasks, WAYS * each]);
        (images, Tensor::from_data(labels, device))
    }
}

impl TaskSource for Episodes {
    type Kind = Classification;

    fn tasks<B: Backend>(
        &self,
        indices: Range<u64>,
        device: &B::Device,
    ) -> Result<EpisodeBatch<B>, DataError> {
        let (mut support, mut queries) = (Vec::new(), Vec::new());
        for index in indices {
            let index = index as usize;
            let mut classes: Vec<usize> = (0..CLASSES).collect();
            classes.sort_by_key(|class| (draw(CHOICES, index * CLASSES + class), *class));
            let first = index * WAYS * (SHOTS + QUERIES);
            support.extend(images(&classes[..WAYS], SHOTS, first));
            queries.extend(images(&classes[..WAYS], QUERIES, first + WAYS * SHOTS));
        }
        let (images, labels) = self.labelled(support, SHOTS, device);
        let support = Support { images, labels, ways: WAYS };
        let (queries, query_labels) = self.labelled(queries, QUERIES, device);
        Ok(EpisodeBatch::from(EpisodeTensors { support, queries, query_labels }))
    }

    fn test_batch_size(&self) -> usize {
        1
    }

    fn settings(&self) -> Value {
        Value::Null
    }
}

fn encoder(case: &Case) -> (Conv4<B>, usize) {
    let config = Conv4Config::new([1, SIDE, SIDE]).with_channels(CHANNELS).with_blocks(BLOCKS);
    let config = match case.downsampling {
        Downsampling::MaxPool => config,
        Downsampling::Stride => {
            config.with_downsampling(Downsampling::Stride).with_readout(Readout::Average)
        }
    };
    (config.init(&Default::default()), config.features())
}

/// Parameters behind `prefix`, of an encoder alone or of one with a head on its features.
fn parameters(prefix: &str, head: Option<usize>) -> Values {
    let mut sizes = Vec::new();
    for block in 0..BLOCKS {
        let inputs = if block == 0 { 1 } else { CHANNELS };
        let of_block = [
            ("conv.weight", CHANNELS * inputs * 9),
            ("conv.bias", CHANNELS),
            ("norm.gamma", CHANNELS),
            ("norm.beta", CHANNELS),
        ];
        sizes.extend(of_block.map(|(name, size)| (format!("encoder.blocks.{block}.{name}"), size)));
    }
    if let Some(features) = head {
        sizes.push(("head.weight".to_owned(), features * WAYS));
        sizes.push(("head.bias".to_owned(), WAYS));
    }
    let drawn = sizes.into_iter().enumerate().map(|(stream, (name, size))| {
        let mean = if name.ends_with("gamma") { 1.0 } else { 0.0 };
        let value = |at| mean + (f64::from(draw(stream as u32, at)) - 2048.0) / 8192.0;
        (format!("{prefix}{name}"), (0..size).map(value).collect())
    });
    drawn.collect()
}

/// The loss of each step of a training.
fn losses<L: MetaLearner<B>>(learner: L, dtype: DType, steps: usize) -> Vec<f64> {
    let losses = Rc::new(RefCell::new(Vec::new()));
    let observed = losses.clone();
    MetaTrainer::new(learner, Adam::new().init())
        .episodes(Episodes { dtype })
        .meta_batch(TASKS as u64)
        .learning_rate(OUTER_RATE)
        .steps(steps as u64)
        .observe(move |event| {
            if let Event::Step { metrics, .. } = event {
                observed.borrow_mut().push(f64::from(metrics.loss));
            }
        })
        .fit::<B>()
        .expect("a training");
    losses.take()
}

/// In double precision `steps` agree; in single precision the first, before rounding puts a unit on the other side of its
/// threshold.
fn assert_twins<L: MetaLearner<B>>(case: &Case, steps: usize, learner: impl Fn(DType) -> L) {
    for (dtype, steps, tolerance) in [(DType::F64, steps, 1e-6), (DType::F32, 25, 1e-3)] {
        let losses = losses(learner(dtype), dtype, steps);
        assert_eq!(losses.len(), steps);
        for (step, (loss, expected)) in losses.iter().zip(&case.losses[..steps]).enumerate() {
            let error = (loss / expected - 1.0).abs();
            assert!(error <= tolerance, "{dtype:?}: loss of step {step} is {loss}, not {expected}");
        }
    }
}

fn maml(case: &Case, dtype: DType) -> Maml<B, Network> {
    let (encoder, features) = encoder(case);
    let classifier = Classifier::new(encoder, features, WAYS, &Default::default());
    let inner = InnerLoop::new(case.inner_steps.unwrap(), case.inner_rate.unwrap());
    let learner = match case.adapts.as_str() {
        "head" => Maml::anil(classifier, inner),
        _ => Maml::new(classifier, inner),
    };
    let learner = learner.expect("an inner loop that can be run");
    with_values::<B, _>(learner, &parameters("network.", Some(features)), dtype)
}

#[test]
fn prototypical_networks_train_as_in_pytorch() {
    let case = case("proto_net");
    assert_twins(&case, STEPS, |dtype| {
        with_values::<B, _>(ProtoNet::new(encoder(&case).0), &parameters("", None), dtype)
    });
}

#[test]
fn maml_trains_as_in_pytorch() {
    let runs = [
        ("maml", SecondOrder::Chain, STEPS),
        ("maml_of_5_steps", SecondOrder::Chain, STEPS),
        ("maml_of_5_steps", SecondOrder::Unrolled, 50),
    ];
    for (name, route, steps) in runs {
        let case = case(name);
        assert_twins(&case, steps, |dtype| maml(&case, dtype).with_second_order(route));
    }
}

#[test]
fn anil_trains_as_in_pytorch() {
    let case = case("anil");
    assert_twins(&case, STEPS, |dtype| maml(&case, dtype));
}
