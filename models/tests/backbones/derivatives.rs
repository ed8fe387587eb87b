//! Second derivatives of networks, and running averages: laws of every network.

use std::collections::BTreeMap;

use burn::backend::{Autodiff, Flex};
use burn::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{FloatDType, Tensor, TensorData};
use burn_store::ModuleSnapshot;
use fewshot_models::nn::RUNNING_AVERAGES;
use fewshot_models::{
    BnStatistics, Differentiable, EfficientNetLite, EfficientNetLiteConfig, Encoder, ResNet,
    ResNet12, ResNet12Config, ResNetConfig, Vit, VitConfig, VitFamily, WideResNet,
    WideResNetConfig,
};

use super::values;

type Once = Autodiff<Flex>;
type Twice = Autodiff<Once>;

fn resnet12() -> ResNet12Config {
    ResNet12Config::new().with_widths([4, 5, 6, 7])
}

fn resnet(bottleneck: bool) -> ResNetConfig {
    ResNetConfig::new([1, 2, 1, 1], bottleneck).with_width(4)
}

fn wide_resnet() -> WideResNetConfig {
    WideResNetConfig::new().with_blocks(1).with_width(1)
}

fn vit(family: VitFamily) -> VitConfig {
    VitConfig::new(family, 16, 2, 12, 2, 3).with_registers(1).with_projection(5)
}

fn images<B: Backend>(count: usize, side: usize, dtype: FloatDType) -> Tensor<B, 4> {
    let shape = [count, 3, side, side];
    let data = values("images", shape.iter().product(), [0.0, 1.0]);
    let data = TensorData::new::<f32, _>(data, shape);
    Tensor::<B, 4>::from_data(data, &Default::default()).cast(dtype)
}

/// Leaves of a type, moved along a direction that depends on their number.
struct Moved {
    dtype: FloatDType,
    by: f64,
    place: usize,
}

fn direction<B: Backend, const D: usize>(place: usize, shape: [usize; D]) -> Tensor<B, D> {
    let name = format!("direction {place}");
    let values = values(&name, shape.iter().product(), [0.0, 1.0]);
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

impl<B: Backend> ModuleMapper<B> for Moved {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, value, _) = param.consume();
        let step = direction::<B, D>(self.place, value.dims()).cast(self.dtype) * self.by;
        self.place += 1;
        let value = (value.detach().cast(self.dtype) + step).detach();
        Param::initialized(id, value.set_require_grad(false).require_grad())
    }
}

/// The squared length of all gradients, those of parameters and of images.
struct Squares<'a, B: AutodiffBackend> {
    gradients: &'a B::Gradients,
    sum: Tensor<B::InnerBackend, 1>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Squares<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = param.val().grad(self.gradients) {
            self.sum = self.sum.clone() + (gradient.clone() * gradient).sum();
        }
    }
}

/// The squared length of the gradient of a sum of cubes of features.
fn steepness<B: AutodiffBackend>(
    network: &impl Encoder<B>,
    images: Tensor<B, 4>,
) -> Tensor<B::InnerBackend, 1> {
    let images = images.require_grad();
    let features = network.encode(images.clone(), BnStatistics::Batch);
    let gradients = (features.clone() * features.clone() * features).mean().backward();
    let of_images = images.grad(&gradients).expect("tracked");
    let sum = (of_images.clone() * of_images).sum();
    let mut squares = Squares::<B> { gradients: &gradients, sum };
    network.visit(&mut squares);
    squares.sum
}

/// The slope of a value along the direction of [`Moved`], by its gradients.
struct Slope<'a> {
    gradients: &'a <Once as AutodiffBackend>::Gradients,
    place: usize,
    slope: f64,
}

impl ModuleVisitor<Once> for Slope<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Once, D>>) {
        if let Some(gradient) = param.val().grad(self.gradients) {
            let along = direction::<Flex, D>(self.place, gradient.dims()).cast(FloatDType::F64);
            let slope = (gradient.cast(FloatDType::F64) * along).sum();
            self.slope += slope.into_data().into_vec::<f64>().unwrap()[0];
        }
        self.place += 1;
    }
}

/// The slope of the steepness along the direction, by a second derivative.
fn slope<T>(network: &T::InnerModule, images: Tensor<Once, 4>, dtype: FloatDType) -> f64
where
    T: Encoder<Twice> + AutodiffModule<Twice>,
    T::InnerModule: Encoder<Once>,
{
    let leaves = network.clone().map(&mut Moved { dtype, by: 0.0, place: 0 });
    let lifted = T::from_inner(leaves.clone());
    let steepness = steepness(&lifted, Tensor::from_inner(images));
    let gradients = steepness.backward();
    let mut slope = Slope { gradients: &gradients, place: 0, slope: 0.0 };
    leaves.visit(&mut slope);
    slope.slope
}

/// Second derivatives are those of central differences in f64, by plain operations, and the same in f32, by fused ones.
fn assert_differentiable_twice<T>(network: T::InnerModule, count: usize, side: usize)
where
    T: Encoder<Twice> + AutodiffModule<Twice>,
    T::InnerModule: Encoder<Once>,
{
    let name = Encoder::<Once>::architecture(&network);
    assert_eq!(Encoder::<Once>::differentiable(&network), Differentiable::Twice, "{name}");
    let images = |dtype| images::<Once>(count, side, dtype);
    let value = |by| {
        let moved = network.clone().map(&mut Moved { dtype: FloatDType::F64, by, place: 0 });
        let steepness = steepness::<Once>(&moved, images(FloatDType::F64));
        steepness.into_data().into_vec::<f64>().unwrap()[0]
    };
    // So small that no activation is likely to pass a kink.
    let size = 1e-9;
    let expected = (value(size) - value(-size)) / (2.0 * size);
    for (dtype, tolerance) in [(FloatDType::F64, 1e-3), (FloatDType::F32, 5e-3)] {
        let slope = slope::<T>(&network, images(dtype), dtype);
        let off = (slope / expected - 1.0).abs();
        assert!(off < tolerance, "the slope of {name} in {dtype:?} is {slope}, not {expected}");
    }
}

fn seed() {
    Once::seed(&Default::default(), 11);
}

#[test]
fn resnet12_is_differentiable_twice() {
    seed();
    let network = resnet12().init(&Default::default());
    assert_differentiable_twice::<ResNet12<Twice>>(network, 3, 32);
}

#[test]
fn resnets_are_differentiable_twice() {
    for bottleneck in [false, true] {
        seed();
        let network = resnet(bottleneck).init(&Default::default());
        assert_differentiable_twice::<ResNet<Twice>>(network, 3, 48);
    }
}

#[test]
fn wide_resnet_is_differentiable_twice() {
    seed();
    let network = wide_resnet().init(&Default::default());
    assert_differentiable_twice::<WideResNet<Twice>>(network, 3, 12);
}

#[test]
fn efficientnet_lite_is_differentiable_twice() {
    seed();
    let network = EfficientNetLiteConfig::new().init(&Default::default());
    assert_differentiable_twice::<EfficientNetLite<Twice>>(network, 2, 48);
}

#[test]
fn vision_transformers_are_differentiable_twice() {
    for family in [VitFamily::DinoV2, VitFamily::Clip, VitFamily::ClipGelu] {
        seed();
        let network = vit(family).init(&Default::default());
        assert_differentiable_twice::<Vit<Twice>>(network, 2, 32);
    }
}

fn running_averages(network: &impl ModuleSnapshot<Flex>) -> BTreeMap<String, Vec<f32>> {
    let tensors = network.collect(None, None, false).into_iter();
    let averages = tensors
        .map(|tensor| (tensor.full_path(), tensor.to_data().unwrap().into_vec().unwrap()))
        .filter(|(name, _): &(String, _)| RUNNING_AVERAGES.iter().any(|of| name.ends_with(of)));
    averages.collect()
}

/// Training moves every running average, and nothing else moves one.
fn assert_tracks<E: Encoder<Flex> + ModuleSnapshot<Flex>>(network: &E, norms: usize) {
    let name = Encoder::<Flex>::architecture(network);
    let (before, images) = (running_averages(network), images(3, 32, FloatDType::F32));
    assert_eq!(before.len(), 2 * norms, "{name}");
    network.encode(images.clone(), BnStatistics::Batch);
    network.encode(images.clone(), BnStatistics::Running);
    assert_eq!(running_averages(network), before, "{name}");
    network.encode(images, BnStatistics::Track);
    for (average, after) in running_averages(network) {
        assert_ne!(after, before[&average], "{average} of {name}");
    }
}

#[test]
fn training_moves_every_running_average_of_every_network() {
    let device = Default::default();
    seed();
    assert_tracks(&resnet12().init(&device), 16);
    assert_tracks(&resnet(false).init(&device), 14);
    assert_tracks(&resnet(true).init(&device), 20);
    assert_tracks(&wide_resnet().init(&device), 7);
    assert_tracks(&EfficientNetLiteConfig::new().init(&device), 49);
}

/// Two passes of training differ by what they drop, and two others do not.
fn assert_drops<E: Encoder<Flex>>(network: &E) {
    let name = network.architecture();
    let encode = |statistics| {
        let features = network.encode(images(3, 32, FloatDType::F32), statistics);
        features.into_data().into_vec::<f32>().unwrap()
    };
    assert_ne!(encode(BnStatistics::Track), encode(BnStatistics::Track), "{name}");
    for statistics in [BnStatistics::Batch, BnStatistics::Running] {
        assert_eq!(encode(statistics), encode(statistics), "{name}");
    }
    assert!(network.draws(), "{name}");
}

#[test]
fn only_training_drops_and_only_where_asked_for() {
    let device = Default::default();
    seed();
    assert_drops(&resnet12().with_drop_rate(0.2).init(&device));
    assert_drops(&wide_resnet().with_drop_rate(0.2).init(&device));
    assert_drops(&vit(VitFamily::DinoV2).with_drop_rate(0.2).init(&device));
    let clip = vit(VitFamily::Clip);
    assert_drops(&clip.clone().with_drop_path(0.5).init(&device));
    let whole = clip.init::<Flex>(&device);
    let encode = |statistics| whole.encode(images(3, 32, FloatDType::F32), statistics).into_data();
    assert_eq!(encode(BnStatistics::Track), encode(BnStatistics::Batch));
}
