use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::backend::{Autodiff, Flex};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::{Dropout, DropoutConfig};
use burn::optim::GradientsParams;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};
use fewshot_models::nn::{Linear, LinearConfig, RUNNING_AVERAGES, drawn};
use fewshot_models::{
    BnStatistics, Conv4, Conv4Config, Downsampling, Encoder, Mlp, MlpConfig, Readout,
};

use super::*;

type B = Autodiff<Flex>;

fn uniform<const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<B, D> {
    B::seed(&Default::default(), seed);
    Tensor::random(shape, Distribution::Uniform(-1.0, 1.0), &Default::default())
}

fn read<const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().into_vec().unwrap()
}

/// A loss that is curved in every feature.
fn loss(features: Tensor<B, 2>) -> Tensor<B, 1> {
    (features.clone() * features.clone() * features.clone() + features).mean()
}

/// The gradient by parameter, `None` where there is none.
fn named<E: Encoder<B>>(encoder: &E, gradients: &GradientsParams) -> Vec<Option<Vec<f32>>> {
    let mut named = Named { gradients, found: Vec::new() };
    encoder.visit(&mut named);
    assert_eq!(named.found.iter().flatten().count(), gradients.len());
    named.found
}

struct Named<'a> {
    gradients: &'a GradientsParams,
    found: Vec<Option<Vec<f32>>>,
}

impl ModuleVisitor<B> for Named<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let gradient = self.gradients.get::<Flex, D>(param.id);
        self.found.push(gradient.map(|gradient| gradient.into_data().into_vec().unwrap()));
    }
}

/// Running averages, one after the other.
fn averages<E: Encoder<B>>(encoder: &E) -> Vec<Vec<f32>> {
    let mut averages = Averages { name: String::new(), found: Vec::new() };
    encoder.visit(&mut averages);
    averages.found
}

struct Averages {
    name: String,
    found: Vec<Vec<f32>>,
}

impl ModuleVisitor<B> for Averages {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.name = name.to_owned();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if RUNNING_AVERAGES.contains(&self.name.as_str()) {
            self.found.push(read(param.val()));
        }
    }
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0f32, |most, value| most.max(value.abs()))
}

/// Equal up to `1e-5` times the largest value of the parameter, but of gradients that only rounding
/// keeps from zero, as those of biases before batch-norm: those are small beside the largest of all.
fn assert_same(found: &[Option<Vec<f32>>], expected: &[Option<Vec<f32>>]) {
    assert_eq!(found.len(), expected.len());
    let floor = expected.iter().flatten().map(|all| largest(all)).fold(0.0, f32::max) / 10.0;
    assert!(floor > 0.0);
    for (index, pair) in found.iter().zip(expected).enumerate() {
        let (found, expected) = match pair {
            (Some(found), Some(expected)) => (found, expected),
            (None, None) => continue,
            _ => panic!("only one has a gradient of parameter {index}"),
        };
        let bound = 1e-5 * largest(expected).max(floor);
        for (found, expected) in found.iter().zip(expected) {
            let error = (found - expected).abs();
            assert!(error <= bound, "{index}: {found}, not {expected}");
        }
    }
}

fn plainly<E: Encoder<B> + AutodiffModule<B>>(
    encoder: &E,
    inputs: &[Tensor<B, 4>],
    statistics: BnStatistics,
) -> Vec<Option<Vec<f32>>> {
    let losses = inputs.iter().map(|x| loss(encoder.encode(x.clone(), statistics)));
    let total = losses.reduce(|total, more| total + more).unwrap();
    named(encoder, &GradientsParams::from_grads(total.backward(), encoder))
}

fn by_segments<E: Encoder<B> + AutodiffModule<B>>(
    encoder: &E,
    inputs: &[Tensor<B, 4>],
    statistics: BnStatistics,
) -> Vec<Option<Vec<f32>>> {
    let mut segments = Segments::new(encoder, encoder, statistics, &Default::default());
    for x in inputs {
        segments.pass(x.clone(), |features| loss(features).backward());
    }
    named(encoder, &segments.gradients())
}

fn conv4(config: &Conv4Config) -> Conv4<B> {
    B::seed(&Default::default(), 3);
    config.init(&Default::default())
}

/// A network whose running averages are about the moments of its images.
fn settled(config: &Conv4Config) -> Conv4<B> {
    let encoder = conv4(config);
    for _ in 0..40 {
        encoder.encode(uniform(5, [6, 2, 19, 17]), BnStatistics::Track);
    }
    encoder
}

/// Four and eight blocks, by pools and by strides, and more.
fn configs() -> Vec<Conv4Config> {
    let small = |blocks| Conv4Config::new([2, 19, 17]).with_channels(5).with_blocks(blocks);
    let deep = small(8).with_halve_every(2);
    vec![
        small(4),
        small(4).with_downsampling(Downsampling::Stride).with_readout(Readout::Average),
        small(4).with_context(3),
        deep.clone(),
        deep.clone().with_downsampling(Downsampling::Stride),
        deep.with_context(3),
        small(8).with_halve_every(3).with_readout(Readout::Average),
    ]
}

#[test]
fn segments_one_after_the_other_are_the_network() {
    for config in configs() {
        let encoder = settled(&config);
        let images = uniform(5, [6, 2, 19, 17]);
        for statistics in [BnStatistics::Batch, BnStatistics::Running] {
            let segments = 0..encoder.segments();
            let step = |x, index| encoder.forward_segment(index, x, statistics);
            let features = segments.fold(images.clone(), step);
            let expected = encoder.encode(images.clone(), statistics);
            assert_eq!(expected.dims(), [6, config.features()]);
            assert_eq!(features.dims(), [6, config.features(), 1, 1]);
            let (found, expected) = (read(features), read(expected));
            assert!(expected.iter().any(|value| *value != 0.0), "{config}");
            assert_eq!(found, expected, "{config} under {statistics:?}");
        }
    }
}

#[test]
fn an_encoder_is_one_segment_unless_it_says_otherwise() {
    let encoder: Mlp<B> = MlpConfig::new(6).with_layers(vec![4]).init(&Default::default());
    let images = uniform(1, [3, 6, 1, 1]);
    let features = encoder.forward_segment(0, images.clone(), BnStatistics::Batch);
    assert_eq!((encoder.segments(), features.dims()), (1, [3, 4, 1, 1]));
    assert_eq!(read(features), read(encoder.encode(images.clone(), BnStatistics::Batch)));
    let inputs = [images];
    let found = by_segments(&encoder, &inputs, BnStatistics::Batch);
    assert_same(&found, &plainly(&encoder, &inputs, BnStatistics::Batch));
}

#[test]
#[should_panic(expected = "there is no segment 4, but 3 from 0 on")]
fn a_segment_beyond_the_last_is_refused() {
    let encoder = conv4(&Conv4Config::omniglot().with_channels(2));
    encoder.forward_segment(
        4,
        Tensor::ones([1, 2, 1, 1], &Default::default()),
        BnStatistics::Batch,
    );
}

#[test]
fn gradients_are_those_of_the_whole_graph() {
    for config in configs() {
        for statistics in [BnStatistics::Track, BnStatistics::Batch, BnStatistics::Running] {
            let (whole, parts) = (settled(&config), settled(&config));
            let before = averages(&parts);
            assert_eq!(before.len(), 2 * config.blocks);
            let inputs = [7, 8, 9].map(|seed| uniform(seed, [4, 2, 19, 17]));
            let expected = plainly(&whole, &inputs, statistics);
            let found = by_segments(&parts, &inputs, statistics);
            let steep = expected.iter().flatten().filter(|all| largest(all) > 0.0).count();
            assert!(steep >= 3 * config.blocks, "{config} under {statistics:?}");
            assert_same(&found, &expected);
            assert_eq!(averages(&parts), averages(&whole), "{config} under {statistics:?}");
            assert_eq!(averages(&parts) != before, statistics == BnStatistics::Track);
        }
    }
}

#[test]
fn the_random_numbers_of_a_network_that_draws_none_stay_as_they_were() {
    let encoder = conv4(&Conv4Config::omniglot().with_channels(2));
    let images = uniform(1, [2, 1, 28, 28]);
    let next = |work: &dyn Fn()| {
        B::seed(&Default::default(), 4);
        work();
        read(Tensor::<B, 1>::random([4], Distribution::Default, &Default::default()))
    };
    let step = || drop(by_segments(&encoder, std::slice::from_ref(&images), BnStatistics::Batch));
    assert_eq!(next(&step), next(&|| ()));
}

/// Freezes what is in the modules of these names.
struct Freeze<'a> {
    path: Vec<String>,
    frozen: &'a [&'a str],
}

impl ModuleMapper<B> for Freeze<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let path = self.path.join(".");
        match self.frozen.iter().any(|start| path.starts_with(start)) {
            true => param.set_require_grad(false),
            false => param,
        }
    }
}

#[test]
fn what_is_frozen_gets_no_gradient() {
    let all = ["blocks"];
    let first = ["blocks.0", "blocks.1.conv"];
    let inner = ["blocks.2", "blocks.3.norm.gamma"];
    for (frozen, left) in [(&all[..], 0), (&first, 10), (&inner, 11), (&[], 16)] {
        let encoder = conv4(&configs()[0]).map(&mut Freeze { path: Vec::new(), frozen });
        let inputs = [7, 8].map(|seed| uniform(seed, [4, 2, 19, 17]));
        let found = by_segments(&encoder, &inputs, BnStatistics::Batch);
        assert_eq!(found.iter().flatten().count(), left);
        if left > 0 {
            assert_same(&found, &plainly(&encoder, &inputs, BnStatistics::Batch));
        }
    }
}

/// Linear layers with dropout between, which counts how often each is computed, and whether its
/// input wanted a gradient.
#[derive(Module, Debug)]
struct Noisy<B: Backend> {
    layers: Vec<Linear<B>>,
    dropout: Dropout,
    #[module(skip)]
    computed: Arc<[AtomicUsize; 3]>,
    #[module(skip)]
    with_gradient: Arc<[AtomicUsize; 3]>,
}

fn noisy() -> Noisy<B> {
    B::seed(&Default::default(), 2);
    let layer = || LinearConfig::new(6, 6).init(&Default::default());
    drawn(Noisy {
        layers: vec![layer(), layer(), layer()],
        dropout: DropoutConfig::new(0.5).init(),
        computed: Arc::default(),
        with_gradient: Arc::default(),
    })
}

impl<B: Backend> Encoder<B> for Noisy<B> {
    fn encode(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 2> {
        let step = |x, index| self.forward_segment(index, x, statistics);
        (0..3).fold(images, step).flatten(1, 3)
    }

    fn segments(&self) -> usize {
        3
    }

    fn forward_segment(&self, index: usize, x: Tensor<B, 4>, _: BnStatistics) -> Tensor<B, 4> {
        self.computed[index].fetch_add(1, Ordering::Relaxed);
        if x.is_require_grad() {
            self.with_gradient[index].fetch_add(1, Ordering::Relaxed);
        }
        let y = self.layers[index].forward(x.flatten::<2>(1, 3)).tanh();
        self.dropout.forward(y).reshape([0, 6, 1, 1])
    }

    fn architecture(&self) -> String {
        "noisy".to_owned()
    }
}

fn vectors() -> [Tensor<B, 4>; 2] {
    [11, 12].map(|seed| uniform(seed, [5, 6, 1, 1]))
}

#[test]
fn the_last_segment_is_computed_once_and_the_images_want_no_gradient() {
    let encoder = noisy();
    by_segments(&encoder, &vectors(), BnStatistics::Track);
    let counts = |all: &[AtomicUsize; 3]| [0, 1, 2].map(|index| all[index].load(Ordering::Relaxed));
    assert_eq!(counts(&encoder.computed), [4, 4, 2]);
    assert_eq!(counts(&encoder.with_gradient), [0, 2, 2]);
}

#[test]
fn dropout_masks_are_the_same_in_both_passes() {
    let (encoder, inputs, device) = (noisy(), vectors(), Default::default());
    B::seed(&device, 21);
    let found = by_segments(&encoder, &inputs, BnStatistics::Batch);

    B::seed(&device, 21);
    let masks = Masks::<B>::draw(&device);
    let losses = inputs.iter().enumerate().map(|(input, x)| {
        let step = |x, index| {
            masks.seed(input as u64, index);
            encoder.forward_segment(index, x, BnStatistics::Batch)
        };
        loss((0..3).fold(x.clone(), step).flatten(1, 3))
    });
    let total = losses.reduce(|total, more| total + more).unwrap();
    let expected = GradientsParams::from_grads(total.backward(), &encoder);
    assert_same(&found, &named(&encoder, &expected));
}

#[test]
fn a_step_repeats_under_its_seed_and_the_next_one_has_other_masks() {
    let (encoder, inputs) = (noisy(), vectors());
    let steps = || {
        B::seed(&Default::default(), 21);
        [(); 2].map(|()| by_segments(&encoder, &inputs, BnStatistics::Batch))
    };
    let [first, second] = steps();
    assert_ne!(first, second);
    assert_eq!(steps(), [first, second]);
}

#[test]
fn inputs_and_segments_have_masks_of_their_own() {
    let device = Default::default();
    B::seed(&device, 21);
    let masks = Masks::<B>::draw(&device);
    let drawn = |input, segment| {
        masks.seed(input, segment);
        read(Tensor::<B, 1>::random([4], Distribution::Default, &device))
    };
    assert_eq!(drawn(0, 0), drawn(0, 0));
    assert_ne!(drawn(0, 0), drawn(1, 0));
    assert_ne!(drawn(0, 0), drawn(0, 1));
    assert_ne!(drawn(0, 1), drawn(1, 0));
}

/// A network that no gradient goes through.
#[derive(Module, Debug)]
struct Cut<B: Backend> {
    layers: Vec<Linear<B>>,
}

impl<B: Backend> Encoder<B> for Cut<B> {
    fn encode(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 2> {
        let first = self.forward_segment(0, images, statistics);
        self.forward_segment(1, first, statistics).flatten(1, 3)
    }

    fn draws(&self) -> bool {
        false
    }

    fn segments(&self) -> usize {
        2
    }

    fn forward_segment(&self, index: usize, x: Tensor<B, 4>, _: BnStatistics) -> Tensor<B, 4> {
        let x = if index == 1 { x.detach().set_require_grad(false) } else { x };
        self.layers[index].forward(x.flatten::<2>(1, 3)).tanh().reshape([0, 6, 1, 1])
    }

    fn architecture(&self) -> String {
        "cut".to_owned()
    }
}

#[test]
fn what_no_gradient_reaches_has_none() {
    let layer = || LinearConfig::new(6, 6).init(&Default::default());
    let encoder = drawn(Cut { layers: vec![layer(), layer()] });
    let found = by_segments(&encoder, &vectors(), BnStatistics::Batch);
    assert_same(&found, &plainly(&encoder, &vectors(), BnStatistics::Batch));
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, true, true]);
}
