//! Networks whose products are of low precision.

use burn::tensor::DType;
use fewshot_models::{Classifier, Downsampling};

use super::*;

const LOW: [Precision; 2] = [Precision::MixedBf16, Precision::MixedF16];

/// Relative errors of logits and of gradients that rounding alone makes, at most.
fn bounds(precision: Precision) -> [f32; 2] {
    match precision {
        Precision::MixedBf16 => [0.02, 0.04],
        _ => [0.0025, 0.005],
    }
}

fn conv4<B: Backend>(downsampling: Downsampling, context: usize, of: Precision) -> Conv4<B> {
    let config = Conv4Config::new([2, 8, 9]).with_channels(5).with_blocks(2);
    let config = config.with_downsampling(downsampling).with_context(context);
    B::seed(&Default::default(), 5);
    config.with_precision(of).init(&Default::default())
}

fn mlp<B: Backend>(context: usize, of: Precision) -> Mlp<B> {
    let config = MlpConfig::new(144).with_layers(vec![20, 6]).with_context(context);
    B::seed(&Default::default(), 5);
    config.with_precision(of).init(&Default::default())
}

fn classifier<B: Backend, E: Encoder<B>>(encoder: E) -> Classifier<B, E> {
    let features = encoder.encode(uniform(1, [1, 2, 8, 9]), BnStatistics::Batch).dims()[1];
    B::seed(&Default::default(), 6);
    Classifier::new(encoder, features, 3, &Default::default())
}

/// Gradients of a loss by the names of parameters, for images that rounding moves past no ReLU's kink and no pool's choice.
fn gradients<B: AutodiffBackend, E: Encoder<B>>(
    network: &Classifier<B, E>,
) -> (Vec<f32>, BTreeMap<String, Vec<f32>>)
where
    Classifier<B, E>: Module<B>,
{
    let logits = network.forward(uniform(11, [6, 2, 8, 9]), BnStatistics::Batch);
    assert_eq!(logits.dtype(), DType::F32);
    let raw = logits.clone().powi_scalar(2).sum().backward();
    let gradients = context::gradients(network, &raw).into_iter().map(|(name, gradient)| {
        assert_eq!(gradient.dtype(), DType::F32, "{name}");
        (name, read(gradient))
    });
    (read(logits.inner()), gradients.collect())
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let norm = |values: Vec<f32>| values.iter().map(|v| v * v).sum::<f32>().sqrt();
    norm(a.iter().zip(b).map(|(a, b)| a - b).collect()) / norm(b.to_vec()).max(f32::MIN_POSITIVE)
}

fn is_near_but_rounded<E: Encoder<Once>>(network: impl Fn(Precision) -> Classifier<Once, E>) {
    let (exact, exact_gradients) = gradients(&network(Precision::F32));
    for precision in LOW {
        let low = network(precision);
        assert_eq!(low.architecture(), network(Precision::F32).architecture());
        assert_eq!([low.encoder.precision(), low.head.precision], [precision; 2]);
        let [logits_bound, gradient_bound] = bounds(precision);
        let (logits, gradients) = gradients(&low);
        let error = distance(&logits, &exact);
        assert!(error > 1e-5 && error < logits_bound, "{precision:?}: logits {error:e} off");
        assert!(gradients.keys().eq(exact_gradients.keys()) && gradients.len() >= 4);
        for (name, gradient) in &gradients {
            let error = distance(gradient, &exact_gradients[name]);
            // The gradient of a bias before a norm is rounding alone.
            let bounded = name.ends_with("conv.bias") || error < gradient_bound;
            assert!(bounded, "{precision:?}, {name}: {error:e}");
        }
    }
}

#[test]
fn networks_of_low_precision_are_near_those_of_f32_with_gradients_of_f32() {
    for downsampling in [Downsampling::MaxPool, Downsampling::Stride] {
        for context in [0, 4] {
            is_near_but_rounded(|of| classifier(conv4(downsampling, context, of)));
        }
    }
    is_near_but_rounded(|of| classifier(mlp(0, of)));
    is_near_but_rounded(|of| classifier(mlp(4, of)));
}

/// The parameters and running averages of a task after task along the first dimension.
struct Repeat(usize);

impl<B: Backend> ModuleMapper<B> for Repeat {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|value| Tensor::cat(vec![value; self.0], 0))
    }
}

#[test]
fn tasks_side_by_side_are_rounded_as_each_alone() {
    fn check<E: Encoder<Flex>>(network: Classifier<Flex, E>) {
        let images = uniform::<Flex, 5>(9, [3, 4, 2, 8, 9]);
        let alone = (0..3).map(|task| {
            let images = images.clone().narrow(0, task, 1).flatten::<4>(0, 1);
            network.forward(images, BnStatistics::Batch)
        });
        let expected = read(Tensor::cat(alone.collect(), 0));
        let lanes = network.clone().map(&mut Repeat(3));
        let found = lanes.forward_lanes(images, BnStatistics::Batch);
        assert_eq!(found.dims(), [3, 4, 3]);
        let error = distance(&read(found), &expected);
        assert!(error < 1e-3, "{}: {error:e}", network.architecture());
    }
    for precision in LOW {
        check(classifier(conv4::<Flex>(Downsampling::MaxPool, 0, precision)));
        check(classifier(mlp::<Flex>(0, precision)));
    }
}

#[test]
fn a_network_of_low_precision_loads_into_one_of_f32_and_keeps_its_own() {
    let low = conv4::<Flex>(Downsampling::MaxPool, 4, Precision::MixedBf16);
    let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::default();
    let bytes = Recorder::<Flex>::record(&recorder, low.clone().into_record(), ()).unwrap();
    let load = |into: Conv4<Flex>| {
        let record = Recorder::<Flex>::load(&recorder, bytes.clone(), &Default::default());
        into.load_record(record.unwrap())
    };
    let full = load(conv4(Downsampling::MaxPool, 4, Precision::F32));
    assert_eq!(full.precision(), Precision::F32);
    assert_eq!(state(&full), state(&low));
    let again = load(conv4(Downsampling::MaxPool, 4, Precision::MixedF16));
    assert_eq!(again.precision(), Precision::MixedF16);
}

#[test]
fn a_network_keeps_its_precision_without_autodiff() {
    let network = classifier(conv4::<Once>(Downsampling::MaxPool, 0, Precision::MixedBf16));
    let valid = network.valid();
    assert_eq!([valid.encoder.precision(), valid.head.precision], [Precision::MixedBf16; 2]);
    let images = || uniform::<Once, 4>(7, [6, 2, 8, 9]);
    let expected = read(network.forward(images(), BnStatistics::Batch).inner());
    assert_eq!(read(valid.forward(images().inner(), BnStatistics::Batch)), expected);
}
