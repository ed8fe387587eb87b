//! Encoders and their layers: weights from elsewhere, statistics, second derivatives.
#![recursion_limit = "256"]

use std::collections::{BTreeMap, HashMap};
use std::panic::catch_unwind;
use std::path::PathBuf;

use burn::backend::{Autodiff, Flex};
use burn::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param, RunningState};
use burn::optim::GradientsParams;
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Record, Recorder};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Tensor, TensorData, Tolerance};
use burn_store::{ModuleSnapshot, PyTorchToBurnAdapter, PytorchStore, SafetensorsStore};
use fewshot_models::nn::{
    BatchNorm, BatchNormConfig, FilmConfig, Linear, LinearConfig, global_avg_pool, max_pool,
};
use fewshot_models::{
    BnStatistics, Conv4, Conv4Config, Downsampling, Encoder, Mlp, MlpConfig, Precision,
};

#[path = "encoders/context/mod.rs"]
mod context;
#[path = "encoders/precision.rs"]
mod precision;

type Once = Autodiff<Flex>;
type Twice = Autodiff<Once>;

/// A network with a value of its own for every parameter and running average.
fn small_conv4() -> Conv4<Flex> {
    let config = Conv4Config::new([2, 8, 9]).with_channels(3).with_blocks(2);
    Flex::seed(&Default::default(), 5);
    config.init(&Default::default())
}

fn uniform<B: Backend, const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<B, D> {
    let device = Default::default();
    B::seed(&device, seed);
    Tensor::random(shape, Distribution::Uniform(-1.0, 1.0), &device)
}

fn read<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().into_vec().unwrap()
}

/// Parameters and running averages by name.
fn state<B: Backend>(module: &impl ModuleSnapshot<B>) -> BTreeMap<String, Vec<f32>> {
    let snapshots = module.collect(None, None, false).into_iter();
    let read = |data: TensorData| data.into_vec().unwrap();
    snapshots.map(|tensor| (tensor.full_path(), read(tensor.to_data().unwrap()))).collect()
}

fn running_only(state: &BTreeMap<String, Vec<f32>>) -> BTreeMap<String, Vec<f32>> {
    let running = state.iter().filter(|(name, _)| name.contains("running"));
    running.map(|(name, values)| (name.clone(), values.clone())).collect()
}

/// Equal up to `tolerance` times the largest value.
fn assert_close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    let largest = expected.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        assert!(error <= tolerance * largest, "{what}[{index}] is {found}, not {expected}");
    }
}

mod weights_from_elsewhere {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Golden {
        cases: HashMap<String, GoldenTensor>,
    }

    #[derive(serde::Deserialize)]
    struct GoldenTensor {
        shape: Vec<usize>,
        data: Vec<f64>,
    }

    fn file(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name)
    }

    impl Golden {
        fn read() -> Self {
            let file = std::fs::File::open(file("conv4.json")).unwrap();
            serde_json::from_reader(file).unwrap()
        }

        fn values(&self, name: &str) -> Vec<f32> {
            self.cases[name].data.iter().map(|&value| value as f32).collect()
        }

        fn tensor<const D: usize>(&self, name: &str) -> Tensor<Flex, D> {
            let data = TensorData::new(self.values(name), self.cases[name].shape.clone());
            Tensor::from_data(data, &Default::default())
        }

        /// The outputs are PyTorch's, and only tracking moves the running averages.
        fn assert_is_golden(&self, encoder: Conv4<Flex>) {
            let images = || self.tensor("pool/input");
            let before = state(&encoder);
            for (statistics, name) in
                [(BnStatistics::Batch, "batch"), (BnStatistics::Running, "running")]
            {
                let output = encoder.forward(images(), statistics);
                assert_eq!(output.dims(), [6, 5, 2, 2]);
                let expected = self.values(&format!("pool/{name}/output"));
                assert_close(name, &read(output), &expected, 2e-5);
            }
            assert_eq!(state(&encoder), before);

            encoder.forward(images(), BnStatistics::Track);
            let after = state(&encoder);
            for block in 0..2 {
                for (ours, theirs) in [("mean", "mean"), ("var", "variance")] {
                    let name = format!("blocks.{block}.norm.running_{ours}");
                    let old = self.values(&format!("pool/state/{name}"));
                    let batch = self.values(&format!("pool/batch/{theirs}/{block}"));
                    let moved = old.iter().zip(&batch).map(|(old, batch)| 0.9 * old + 0.1 * batch);
                    assert_close(&name, &after[&name], &moved.collect::<Vec<_>>(), 2e-5);
                }
            }
        }
    }

    fn fresh() -> Conv4<Flex> {
        let config = Conv4Config::new([3, 9, 11]).with_channels(5).with_blocks(2);
        config.init(&Default::default())
    }

    #[test]
    fn a_safetensors_file_of_pytorch_gives_its_outputs() {
        let mut encoder = fresh();
        let mut store = SafetensorsStore::from_file(file("conv4.safetensors"))
            .with_from_adapter(PyTorchToBurnAdapter);
        let result = encoder.load_from(&mut store).unwrap();
        assert_eq!(result.applied.len(), 12, "{result}");
        Golden::read().assert_is_golden(encoder);
    }

    #[test]
    fn a_state_dict_of_pytorch_gives_its_outputs() {
        let mut encoder = fresh();
        let mut store = PytorchStore::from_file(file("conv4.pt"));
        let result = encoder.load_from(&mut store).unwrap();
        assert_eq!(result.applied.len(), 12, "{result}");
        Golden::read().assert_is_golden(encoder);
    }

    /// Through bytes, so that only names and shapes count.
    pub fn carried<R: Record<Flex>, S: Record<Flex>>(record: R) -> S {
        let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::default();
        let bytes = Recorder::<Flex>::record(&recorder, record, ()).unwrap();
        Recorder::<Flex>::load(&recorder, bytes, &Default::default()).unwrap()
    }

    #[test]
    fn a_linear_record_of_burn_gives_its_outputs_and_goes_back() {
        let device = Default::default();
        for bias in [true, false] {
            let burns = burn::nn::LinearConfig::new(5, 3).with_bias(bias).init::<Flex>(&device);
            let ours = LinearConfig::new(5, 3).with_bias(bias).init::<Flex>(&device);
            let x = uniform(1, [4, 5]);
            let expected = burns.forward(x.clone()).into_data();
            let apart = ours.forward(x.clone()).into_data();
            assert_ne!(apart, expected);

            let ours = ours.load_record(carried(burns.into_record()));
            let found = ours.forward(x.clone()).into_data();
            found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));

            let burns = burn::nn::LinearConfig::new(5, 3).with_bias(bias).init::<Flex>(&device);
            let burns = burns.load_record(carried(ours.into_record()));
            let found = burns.forward(x).into_data();
            found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
        }
    }

    #[test]
    fn a_batch_norm_record_of_burn_gives_its_outputs_and_goes_back() {
        let device = Default::default();
        let fresh = || burn::nn::BatchNormConfig::new(3).init::<Flex>(&device);
        let vector = |seed| uniform::<Flex, 1>(seed, [3]);
        let burns = burn::nn::BatchNorm {
            gamma: Param::from_tensor(vector(1)),
            beta: Param::from_tensor(vector(2)),
            running_mean: RunningState::new(vector(3)),
            running_var: RunningState::new(vector(4).abs() + 0.5),
            ..fresh()
        };
        let x = uniform::<Flex, 4>(5, [2, 3, 4, 5]);
        let expected = burns.forward(x.clone()).into_data();

        let ours = BatchNormConfig::new(3).init::<Flex>(&device);
        let ours = ours.load_record(carried(burns.into_record()));
        let found = ours.forward(x.clone(), BnStatistics::Running).into_data();
        found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));

        let burns = fresh().load_record(carried(ours.into_record()));
        burns.forward(x).into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
    }

    #[test]
    fn batch_statistics_are_those_of_burns_layer_in_training() {
        let device = Default::default();
        let x = uniform::<Once, 4>(6, [3, 2, 4, 5]) * 3.0 + 1.0;
        let burns = burn::nn::BatchNormConfig::new(2).init::<Once>(&device);
        let ours = BatchNormConfig::new(2).init::<Once>(&device);
        let expected = burns.forward(x.clone()).into_data();
        let found = ours.forward(x, BnStatistics::Track).into_data();
        found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        let running = [
            (ours.running().mean, burns.running_mean.value_sync()),
            (ours.running().variance, burns.running_var.value_sync()),
        ];
        for (found, expected) in running {
            let expected = expected.into_data();
            found.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        }
    }
}

mod statistics {
    use super::*;

    #[test]
    fn only_tracking_moves_a_networks_running_averages() {
        let encoder = small_conv4();
        let images = || uniform(8, [4, 2, 8, 9]) * 2.0;
        let before = state(&encoder);
        let batch = encoder.encode(images(), BnStatistics::Batch).into_data();
        let running = encoder.encode(images(), BnStatistics::Running).into_data();
        assert_ne!(batch, running);
        assert_eq!(state(&encoder), before);

        let tracked = encoder.encode(images(), BnStatistics::Track).into_data();
        assert_eq!(tracked, batch);
        let after = state(&encoder);
        assert_eq!(running_only(&before).len(), 4);
        for name in before.keys() {
            assert_eq!(before[name] != after[name], name.contains("running"), "{name}");
        }
        assert_ne!(encoder.encode(images(), BnStatistics::Running).into_data(), running);
    }

    #[test]
    fn a_layer_averages_the_biased_variance() {
        let layer = BatchNormConfig::new(1).with_momentum(0.25).init::<Flex>(&Default::default());
        let x = Tensor::from_floats([[[[1.0, 3.0]]], [[[5.0, 7.0]]]], &Default::default());
        layer.forward(x.clone(), BnStatistics::Batch);
        layer.forward(x.clone(), BnStatistics::Running);
        assert_eq!(read(layer.running().mean), [0.0]);
        assert_eq!(read(layer.running().variance), [1.0]);
        layer.forward(x, BnStatistics::Track);
        assert_close("mean", &read(layer.running().mean), &[1.0], 1e-6);
        assert_close("variance", &read(layer.running().variance), &[0.75 + 0.25 * 5.0], 1e-6);
    }

    #[test]
    fn what_a_clone_tracks_stays_with_the_clone() {
        let original = small_conv4();
        let images = || uniform(9, [4, 2, 8, 9]) * 2.0;
        let clone = original.clone();
        let before = state(&original);
        assert_eq!(state(&clone), before);
        clone.encode(images(), BnStatistics::Track);
        assert_eq!(state(&original), before);
        let tracked_once = state(&clone);
        assert_ne!(tracked_once, before);
        original.encode(images(), BnStatistics::Track);
        assert_eq!(state(&clone), tracked_once);
        assert_eq!(state(&original), tracked_once);
    }

    #[test]
    fn an_inner_module_has_the_running_averages_and_keeps_its_own() {
        let config = Conv4Config::new([2, 8, 9]).with_channels(3).with_blocks(2);
        let outer: Conv4<Once> = config.init(&Default::default());
        outer.encode(uniform(10, [4, 2, 8, 9]), BnStatistics::Track);
        let inner = outer.valid();
        let before = state(&outer);
        assert_eq!(state(&inner), before);
        inner.encode(uniform(11, [4, 2, 8, 9]), BnStatistics::Track);
        assert_ne!(state(&inner), before);
        assert_eq!(state(&outer), before);
    }

    #[test]
    fn running_averages_survive_a_record() {
        let encoder = small_conv4();
        encoder.encode(uniform(12, [4, 2, 8, 9]), BnStatistics::Track);
        let config = Conv4Config::new([2, 8, 9]).with_channels(3).with_blocks(2);
        let other: Conv4<Flex> = config.init(&Default::default());
        assert_ne!(state(&other), state(&encoder));
        let other = other.load_record(encoder.clone().into_record());
        assert_eq!(state(&other), state(&encoder));
    }

    #[test]
    fn running_averages_have_no_gradient() {
        let config = Conv4Config::new([2, 8, 9]).with_channels(3).with_blocks(2);
        let encoder: Conv4<Once> = config.init(&Default::default());
        for statistics in [BnStatistics::Track, BnStatistics::Batch, BnStatistics::Running] {
            let features = encoder.encode(uniform(13, [4, 2, 8, 9]), statistics);
            let gradients = features.powi_scalar(2).sum().backward();
            assert_eq!(GradientsParams::from_grads(gradients, &encoder).len(), 8);
        }
    }
}

mod shapes {
    use super::*;

    #[test]
    fn an_omniglot_image_becomes_64_features() {
        let config = Conv4Config::omniglot();
        let encoder: Conv4<Flex> = config.init(&Default::default());
        let features = encoder.encode(uniform(1, [3, 1, 28, 28]), BnStatistics::Running);
        assert_eq!((features.dims(), config.features()), ([3, 64], 64));
        assert_eq!(encoder.num_params(), 640 + 3 * 36_928 + 4 * 4 * 64);
        assert_eq!(encoder.architecture(), "conv4(1x28x28, 64 channels, max-pool)");
    }

    #[test]
    fn a_mini_imagenet_image_becomes_1600_features() {
        let config = Conv4Config::mini_imagenet();
        let encoder: Conv4<Flex> = config.init(&Default::default());
        let features = encoder.encode(uniform(1, [1, 3, 84, 84]), BnStatistics::Running);
        assert_eq!((features.dims(), config.features()), ([1, 1600], 1600));
    }

    #[test]
    fn eight_blocks_that_halve_in_turns_leave_as_much_as_four() {
        let config = Conv4Config::mini_imagenet().with_channels(2).with_blocks(8);
        assert!(!config.fits());
        let config = config.with_halve_every(2);
        for (downsampling, text, side) in
            [(Downsampling::MaxPool, "max-pool", 5), (Downsampling::Stride, "stride 2", 6)]
        {
            let config = config.clone().with_downsampling(downsampling);
            let encoder: Conv4<Flex> = config.init(&Default::default());
            let maps = encoder.forward(uniform(1, [1, 3, 84, 84]), BnStatistics::Batch);
            assert_eq!(maps.dims(), [1, 2, side, side]);
            assert_eq!(config.features(), 2 * side * side);
            let text = format!("conv8(3x84x84, 2 channels, {text} every 2 blocks)");
            assert_eq!(encoder.architecture(), text);
        }
    }

    #[test]
    fn strides_round_up_and_pools_down() {
        let config = Conv4Config::new([1, 28, 9]).with_channels(2).with_blocks(3);
        for (downsampling, h, w) in [(Downsampling::MaxPool, 3, 1), (Downsampling::Stride, 4, 2)] {
            let config = config.clone().with_downsampling(downsampling);
            let encoder: Conv4<Flex> = config.init(&Default::default());
            let maps = encoder.forward(uniform(1, [2, 1, 28, 9]), BnStatistics::Batch);
            assert_eq!(maps.dims(), [2, 2, h, w]);
            let features = encoder.encode(uniform(1, [2, 1, 28, 9]), BnStatistics::Batch);
            assert_eq!(features.dims(), [2, config.features()]);
            assert_eq!(read(features), read(maps));
        }
    }

    #[test]
    fn an_mlp_flattens_images() {
        let config = MlpConfig::new(12).with_layers(vec![5, 7]);
        let encoder: Mlp<Flex> = config.init(&Default::default());
        let images = uniform(2, [4, 3, 2, 2]);
        let features = encoder.encode(images.clone(), BnStatistics::Running);
        assert_eq!(features.dims(), [4, 7]);
        assert_eq!(read(features), read(encoder.forward(images.reshape([4, 12]))));
        assert_eq!(encoder.architecture(), "mlp(12-5-7)");
    }

    #[test]
    fn a_config_fits_as_long_as_a_pixel_is_left() {
        let fits = |config: Conv4Config| config.fits();
        assert!(fits(Conv4Config::omniglot()) && fits(Conv4Config::mini_imagenet()));
        assert!(fits(Conv4Config::new([1, 16, 31])));
        assert!(!fits(Conv4Config::new([1, 15, 31])));
        assert!(!fits(Conv4Config::new([1, 31, 15])));
        assert!(!fits(Conv4Config::omniglot().with_blocks(5)));
        let stride = Conv4Config::omniglot().with_downsampling(Downsampling::Stride);
        assert!(fits(stride.clone().with_blocks(9)));
        for broken in [
            Conv4Config::new([0, 28, 28]),
            Conv4Config::new([1, 0, 28]),
            Conv4Config::omniglot().with_channels(0),
            Conv4Config::omniglot().with_halve_every(0),
            stride.with_blocks(0),
        ] {
            assert!(!fits(broken.clone()), "{broken}");
        }
    }

    #[test]
    fn a_network_without_a_pixel_left_is_refused() {
        let config = Conv4Config::omniglot().with_blocks(5);
        let panic = catch_unwind(|| config.init::<Flex>(&Default::default())).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert_eq!(message, "5 blocks do not fit images of 1x28x28");
    }

    #[test]
    fn a_seed_gives_the_same_parameters_again() {
        fn drawn<M: ModuleSnapshot<Flex>>(
            seed: u64,
            init: impl Fn() -> M,
        ) -> BTreeMap<String, Vec<f32>> {
            Flex::seed(&Default::default(), seed);
            state(&init())
        }
        let conv4 = || Conv4Config::new([1, 8, 8]).with_blocks(2).init(&Default::default());
        assert_eq!(drawn(3, conv4), drawn(3, conv4));
        assert_ne!(drawn(3, conv4), drawn(4, conv4));
        let mlp = || MlpConfig::new(6).init(&Default::default());
        assert_eq!(drawn(3, mlp), drawn(3, mlp));
        assert_ne!(drawn(3, mlp), drawn(4, mlp));
    }

    #[test]
    fn parameters_are_drawn_within_pytorchs_bounds() {
        let linear = LinearConfig::new(16, 500).init::<Flex>(&Default::default());
        let bias = linear.bias.expect("asked for by default");
        for values in [read(linear.weight.val()), read(bias.val())] {
            let largest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
            assert!((0.24..=0.25).contains(&largest), "{largest}");
        }
    }
}

mod second_derivatives {
    use super::*;

    /// The squared length of the gradient by `x` of `sum(y^3) / 3`.
    fn steepness<B: AutodiffBackend, const D: usize, const E: usize>(
        x: Tensor<B, D>,
        y: impl FnOnce(Tensor<B, D>) -> Tensor<B, E>,
    ) -> Tensor<B::InnerBackend, 1> {
        let x = x.require_grad();
        let y = y(x.clone());
        let loss = (y.clone() * y.clone() * y).sum() / 3.0;
        let gradient = x.grad(&loss.backward()).unwrap();
        (gradient.clone() * gradient).sum()
    }

    fn differences(at: &[f32], of: impl Fn(Vec<f32>) -> f32) -> Vec<f32> {
        differences_by(1e-3, at, of)
    }

    pub fn differences_by(size: f32, at: &[f32], of: impl Fn(Vec<f32>) -> f32) -> Vec<f32> {
        let moved = |index: usize, step: f32| {
            let mut values = at.to_vec();
            values[index] += step;
            of(values)
        };
        let each = 0..at.len();
        each.map(|index| (moved(index, size) - moved(index, -size)) / (2.0 * size)).collect()
    }

    pub fn tensor<B: Backend, const D: usize>(values: Vec<f32>, shape: [usize; D]) -> Tensor<B, D> {
        Tensor::from_data(TensorData::new(values, shape), &Default::default())
    }

    #[test]
    fn of_linear_are_those_of_central_differences() {
        let shapes = ([4, 3], [3, 2], [2]);
        let [x, weight, bias] = [
            read(uniform::<Flex, 2>(1, shapes.0)),
            read(uniform::<Flex, 2>(2, shapes.1)),
            read(uniform::<Flex, 1>(3, shapes.2)),
        ];
        fn linear<B: Backend>(weight: Tensor<B, 2>, bias: Tensor<B, 1>) -> Linear<B> {
            let (weight, bias) = (Param::from_tensor(weight), Some(Param::from_tensor(bias)));
            Linear { weight, bias, precision: Precision::F32 }
        }
        let value = |x: &[f32], weight: &[f32], bias: &[f32]| {
            let layer =
                linear::<Once>(tensor(weight.to_vec(), shapes.1), tensor(bias.to_vec(), shapes.2));
            steepness(tensor(x.to_vec(), shapes.0), |x| layer.forward(x)).into_scalar()
        };

        let leaf_x = tensor::<Once, 2>(x.clone(), shapes.0).require_grad();
        let leaf_weight = tensor::<Once, 2>(weight.clone(), shapes.1).require_grad();
        let leaf_bias = tensor::<Once, 1>(bias.clone(), shapes.2).require_grad();
        let layer = linear::<Twice>(
            Tensor::from_inner(leaf_weight.clone()),
            Tensor::from_inner(leaf_bias.clone()),
        );
        let steepness = steepness(Tensor::from_inner(leaf_x.clone()), |x| layer.forward(x));
        let gradients = steepness.backward();
        let found = read(leaf_x.grad(&gradients).unwrap());
        assert_close("x", &found, &differences(&x, |x| value(&x, &weight, &bias)), 2e-3);
        let found = read(leaf_weight.grad(&gradients).unwrap());
        assert_close("weight", &found, &differences(&weight, |w| value(&x, &w, &bias)), 2e-3);
        let found = read(leaf_bias.grad(&gradients).unwrap());
        assert_close("bias", &found, &differences(&bias, |b| value(&x, &weight, &b)), 2e-3);
    }

    /// Reads parameters, or their gradients, one after another.
    struct Flattened<'a> {
        gradients: Option<&'a GradientsParams>,
        values: Vec<f32>,
    }

    impl ModuleVisitor<Once> for Flattened<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Once, D>>) {
            self.values.extend(match self.gradients {
                None => read(param.val()),
                Some(all) => read(all.get::<Flex, D>(param.id).expect("a gradient each")),
            });
        }
    }

    struct Filled<'a>(std::slice::Iter<'a, f32>);

    impl ModuleMapper<Once> for Filled<'_> {
        fn map_float<const D: usize>(
            &mut self,
            param: Param<Tensor<Once, D>>,
        ) -> Param<Tensor<Once, D>> {
            let dims = param.dims();
            let values = self.0.by_ref().take(dims.iter().product()).copied().collect();
            Param::initialized(param.id, tensor(values, dims).require_grad())
        }
    }

    #[test]
    fn of_an_mlp_are_those_of_central_differences() {
        let device = Default::default();
        Once::seed(&device, 4);
        let mlp: Mlp<Once> = MlpConfig::new(3).with_layers(vec![5, 4, 2]).init(&device);
        let mut parameters = Flattened { gradients: None, values: Vec::new() };
        mlp.visit(&mut parameters);
        let (x, parameters) = (read(uniform::<Flex, 2>(6, [4, 3]) * 2.0), parameters.values);
        assert_eq!(parameters.len(), 15 + 5 + 20 + 4 + 8 + 2);
        let value = |x: &[f32], parameters: &[f32]| {
            let mlp = mlp.clone().map(&mut Filled(parameters.iter()));
            steepness(tensor(x.to_vec(), [4, 3]), |x| mlp.forward(x)).into_scalar()
        };

        let leaf = tensor::<Once, 2>(x.clone(), [4, 3]).require_grad();
        let lifted = <Mlp<Twice> as AutodiffModule<Twice>>::from_inner(mlp.clone());
        let steepness = steepness(Tensor::from_inner(leaf.clone()), |x| lifted.forward(x));
        let gradients = steepness.backward();
        let found = read(leaf.grad(&gradients).unwrap());
        assert_close("x", &found, &differences(&x, |x| value(&x, &parameters)), 5e-3);
        let gradients = GradientsParams::from_grads(gradients, &mlp);
        let mut found = Flattened { gradients: Some(&gradients), values: Vec::new() };
        mlp.visit(&mut found);
        let expected = differences(&parameters, |parameters| value(&x, &parameters));
        assert_close("parameters", &found.values, &expected, 5e-3);
    }

    #[test]
    fn of_a_max_pool_are_at_the_largest_values() {
        let x = tensor::<Once, 4>(
            vec![1.0, -2.0, 0.5, 3.0, 0.25, 9.0, -1.0, -1.5, -2.0, -3.0, -2.5, 9.0],
            [1, 2, 2, 3],
        );
        let x = x.require_grad();
        let steepness = steepness(Tensor::from_inner(x.clone()), max_pool::<Twice>);
        // The odd column is dropped. With m the largest value, the steepness is m^4.
        assert_close("value", &read(steepness.clone()), &[81.0 + 1.0], 1e-6);
        let found = read(x.grad(&steepness.backward()).unwrap());
        let mut expected = [0.0; 12];
        (expected[3], expected[6]) = (4.0 * 27.0, -4.0);
        assert_close("gradient", &found, &expected, 1e-6);
    }

    #[test]
    fn of_a_global_average_pool_are_spread_evenly() {
        let x = tensor::<Once, 4>(vec![1.0, 2.0, 3.0, 6.0, -1.0, 0.0, -2.0, -1.0], [1, 2, 2, 2]);
        let x = x.require_grad();
        let steepness = steepness(Tensor::from_inner(x.clone()), global_avg_pool::<Twice>);
        // With m the mean of 4 values, the steepness is m^4 / 4.
        assert_close("value", &read(steepness.clone()), &[81.0 / 4.0 + 1.0 / 4.0], 1e-6);
        let found = read(x.grad(&steepness.backward()).unwrap());
        let expected = [6.75, 6.75, 6.75, 6.75, -0.25, -0.25, -0.25, -0.25];
        assert_close("gradient", &found, &expected, 1e-6);
    }

    #[test]
    fn of_batch_norm_are_those_of_central_differences() {
        let x = read(uniform::<Flex, 4>(6, [3, 2, 2, 1]));
        fn layer<B: Backend>() -> BatchNorm<B> {
            BatchNormConfig::new(2).with_epsilon(0.5).init(&Default::default())
        }
        let value = |x: Vec<f32>| {
            let x = tensor::<Once, 4>(x, [3, 2, 2, 1]);
            steepness(x, |x| layer().forward(x, BnStatistics::Batch)).into_scalar()
        };
        let leaf = tensor::<Once, 4>(x.clone(), [3, 2, 2, 1]).require_grad();
        let steepness = steepness(Tensor::from_inner(leaf.clone()), |x| {
            layer::<Twice>().forward(x, BnStatistics::Batch)
        });
        let found = read(leaf.grad(&steepness.backward()).unwrap());
        assert_close("x", &found, &differences(&x, value), 2e-3);
    }
}

#[test]
fn averages_of_images_embed_each_as_the_batch_embeds_all() {
    let images = uniform::<Flex, 4>(3, [6, 2, 8, 9]);
    let together = read(small_conv4().encode(images.clone(), BnStatistics::Batch));
    let network = small_conv4().with_averages_of(images.clone());
    let each = images.clone().chunk(6, 0).into_iter();
    let alone: Vec<_> =
        each.flat_map(|image| read(network.encode(image, BnStatistics::Running))).collect();
    assert_close("features", &alone, &together, 1e-5);
    // Later batches move the averages as far as they always do.
    let before = state(&network);
    network.encode(images * 3.0, BnStatistics::Track);
    let key = "blocks.0.norm.running_var";
    let moved = state(&network)[key][0] / before[key][0];
    assert!((moved - (0.9 + 0.1 * 9.0)).abs() < 1e-3, "{moved}");
}
