//! The stack of convolution blocks against its reference and against PyTorch, on every backend.
#![recursion_limit = "256"]

use std::collections::HashMap;

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};
use fewshot_kernels::conv_stack::reference;
use fewshot_kernels::{ConvBlock, Moments, StackOptions, StackOutput, Statistics, conv_stack};

mod lanes;
mod second;

const VALUES: f32 = 2e-5;
const GRADIENTS: f32 = 2e-4;
const SECOND: f32 = 2e-3;

/// What all results are judged by: the reference on a backend that takes every shape.
type Judge = Autodiff<Flex>;

/// How the tensors of a network lie in memory.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Contiguous,
    /// Images from `[n, h, w, c]`, weights from `[3, 3, c_in, c_out]`.
    Permuted,
    /// Images from `[1, c, h, w]`, vectors from `[1]`.
    Expanded,
}

/// A network and its images on the host, from which every backend makes its tensors.
#[derive(Clone)]
struct Network {
    name: String,
    images: TensorData,
    count: usize,
    layers: Vec<Layer>,
    running: Option<Vec<[TensorData; 2]>>,
    output_gradient: TensorData,
    layout: Layout,
    epsilon: f64,
}

#[derive(Clone)]
struct Layer {
    weight: TensorData,
    /// Bias, gamma, beta.
    vectors: [Option<TensorData>; 3],
    channels: usize,
    stride: usize,
    pool: bool,
}

/// One block: channels, stride, pool.
type Spec = (usize, usize, bool);

/// Numbers between -1 and 1, the same on every platform.
struct Numbers(u64);

impl Numbers {
    fn draw(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) as i64 as f32 / i64::MAX as f32
    }

    fn data<const D: usize>(&mut self, shape: [usize; D], map: impl Fn(f32) -> f32) -> TensorData {
        let length = shape.iter().product();
        TensorData::new((0..length).map(|_| map(self.draw())).collect::<Vec<f32>>(), shape)
    }
}

impl Network {
    fn new(seed: u64, images: [usize; 4], specs: &[Spec]) -> Self {
        Self::laid_out(Layout::Contiguous, seed, images, specs)
    }

    fn laid_out(layout: Layout, seed: u64, images: [usize; 4], specs: &[Spec]) -> Self {
        let numbers = &mut Numbers(seed);
        let name = format!("{layout:?} network {seed} of {images:?}, {specs:?}");
        let [n, mut c, mut h, mut w] = images;
        let images = match layout {
            Layout::Contiguous => images,
            Layout::Permuted => [n, h, w, c],
            Layout::Expanded => [1, c, h, w],
        };
        let images = numbers.data(images, |x| 2.0 * x);
        let mut layers = Vec::new();
        for &(out, stride, pool) in specs {
            let weight = match layout {
                Layout::Permuted => [3, 3, c, out],
                _ => [out, c, 3, 3],
            };
            let length = if matches!(layout, Layout::Expanded) { 1 } else { out };
            let bound = (3.0 / c as f32).sqrt();
            layers.push(Layer {
                weight: numbers.data(weight, |x| bound * x),
                vectors: [
                    Some(numbers.data([length], |x| 0.3 * x)),
                    Some(numbers.data([length], |x| x.signum() * (0.5 + x.abs()))),
                    Some(numbers.data([length], |x| 0.5 * x)),
                ],
                channels: out,
                stride,
                pool,
            });
            let side = if pool { 2 } else { 1 };
            (c, h, w) = (out, h.div_ceil(stride) / side, w.div_ceil(stride) / side);
        }
        let output_gradient = numbers.data([n, c, h, w], |x| x);
        Self {
            name,
            images,
            count: n,
            layers,
            running: None,
            output_gradient,
            layout,
            epsilon: 1e-5,
        }
    }

    fn with_running(mut self) -> Self {
        let numbers = &mut Numbers(99);
        let moments = self.layers.iter().map(|layer| {
            [
                numbers.data([layer.channels], |x| 0.3 * x),
                numbers.data([layer.channels], |x| 1.0 + 0.6 * x),
            ]
        });
        self.running = Some(moments.collect());
        self.name += ", running statistics";
        self
    }

    /// With bias, gamma and beta of every block only where `keep` says so.
    fn with_vectors(mut self, keep: [bool; 3]) -> Self {
        for layer in &mut self.layers {
            for (vector, keep) in layer.vectors.iter_mut().zip(keep) {
                vector.take_if(|_| !keep);
            }
        }
        self
    }

    /// With a gamma and beta of these values, in turn over the channels.
    fn with_affine(mut self, gamma: &[f32], beta: &[f32]) -> Self {
        let turn = |values: &[f32], length| {
            let values = values.iter().copied().cycle().take(length).collect::<Vec<f32>>();
            Some(TensorData::new(values, [length]))
        };
        for layer in &mut self.layers {
            layer.vectors[1] = turn(gamma, layer.channels);
            layer.vectors[2] = turn(beta, layer.channels);
        }
        self
    }

    fn options(&self) -> StackOptions {
        StackOptions { epsilon: self.epsilon, ..Default::default() }
    }

    fn statistics<B: Backend>(&self) -> Statistics<B> {
        let vector = |data: &TensorData| Tensor::from_data(data.clone(), &Default::default());
        match &self.running {
            None => Statistics::Batch,
            Some(moments) => Statistics::Running(
                moments
                    .iter()
                    .map(|[mean, variance]| Moments {
                        mean: vector(mean),
                        variance: vector(variance),
                    })
                    .collect(),
            ),
        }
    }
}

/// The tensors that a network's results are differentiated by.
struct Leaves<B: Backend> {
    images: Tensor<B, 4>,
    weights: Vec<Tensor<B, 4>>,
    vectors: Vec<[Option<Tensor<B, 1>>; 3]>,
    output_gradient: Tensor<B, 4>,
}

const VECTORS: [&str; 3] = ["conv.bias", "norm.weight", "norm.bias"];

fn leaf<B: Backend, const D: usize>(data: &TensorData, tracked: bool) -> Tensor<B, D> {
    let leaf = Tensor::from_data(data.clone(), &Default::default());
    if tracked { leaf.require_grad() } else { leaf }
}

impl<B: Backend> Leaves<B> {
    fn new(network: &Network, tracked: impl Fn(&str) -> bool) -> Self {
        let layers = || network.layers.iter().enumerate();
        Self {
            images: leaf(&network.images, tracked("input")),
            weights: layers()
                .map(|(block, layer)| {
                    leaf(&layer.weight, tracked(&format!("blocks.{block}.conv.weight")))
                })
                .collect(),
            vectors: layers()
                .map(|(block, layer)| {
                    std::array::from_fn(|index| {
                        let name = format!("blocks.{block}.{}", VECTORS[index]);
                        layer.vectors[index].as_ref().map(|data| leaf(data, tracked(&name)))
                    })
                })
                .collect(),
            output_gradient: leaf(&network.output_gradient, tracked("output_gradient")),
        }
    }

    fn images(&self, network: &Network) -> Tensor<B, 4> {
        let images = self.images.clone();
        match network.layout {
            Layout::Contiguous => images,
            Layout::Permuted => images.permute([0, 3, 1, 2]),
            Layout::Expanded => {
                let [_, c, h, w] = images.dims();
                images.expand([network.count, c, h, w])
            }
        }
    }

    fn blocks(&self, network: &Network) -> Vec<ConvBlock<B>> {
        let tensors = self.weights.iter().zip(&self.vectors);
        let blocks = tensors.zip(&network.layers).map(|((weight, vectors), layer)| {
            let [bias, gamma, beta] = vectors.clone().map(|vector| {
                vector.map(|vector| match network.layout {
                    Layout::Expanded => vector.expand([layer.channels]),
                    _ => vector,
                })
            });
            let weight = match network.layout {
                Layout::Permuted => weight.clone().permute([3, 2, 0, 1]),
                _ => weight.clone(),
            };
            ConvBlock { weight, bias, gamma, beta, stride: layer.stride, pool: layer.pool }
        });
        blocks.collect()
    }

    fn forward(&self, network: &Network, stack: Stack<B>) -> StackOutput<B> {
        let blocks = self.blocks(network);
        stack(self.images(network), &blocks, network.statistics(), network.options())
    }

    fn loss(&self, features: Tensor<B, 4>) -> Tensor<B, 1> {
        (features * self.output_gradient.clone()).sum()
    }
}

impl<B: AutodiffBackend> Leaves<B> {
    /// The gradient of every leaf that has one, flattened, by name.
    fn gradients(&self, of: &B::Gradients) -> Vec<(String, Tensor<B::InnerBackend, 1>)> {
        let flat = |leaf: &Tensor<B, 4>| leaf.grad(of).map(|gradient| gradient.flatten(0, 3));
        let mut found = vec![
            ("input".to_string(), flat(&self.images)),
            ("output_gradient".to_string(), flat(&self.output_gradient)),
        ];
        for (block, (weight, vectors)) in self.weights.iter().zip(&self.vectors).enumerate() {
            found.push((format!("blocks.{block}.conv.weight"), flat(weight)));
            for (vector, name) in vectors.iter().zip(VECTORS) {
                let gradient = vector.as_ref().and_then(|vector| vector.grad(of));
                found.push((format!("blocks.{block}.{name}"), gradient));
            }
        }
        let present = found.into_iter();
        present.filter_map(|(name, gradient)| Some((name, gradient?))).collect()
    }
}

/// Leaves of an outer level of autodiff above those of an inner one.
fn lifted<B: AutodiffBackend>(inner: &Leaves<B>) -> Leaves<Autodiff<B>> {
    fn lift<B: AutodiffBackend, const D: usize>(tensor: &Tensor<B, D>) -> Tensor<Autodiff<B>, D> {
        Tensor::from_inner(tensor.clone()).require_grad()
    }
    Leaves {
        images: lift(&inner.images),
        weights: inner.weights.iter().map(lift).collect(),
        vectors: inner
            .vectors
            .iter()
            .map(|vectors| vectors.each_ref().map(|vector| vector.as_ref().map(lift)))
            .collect(),
        output_gradient: lift(&inner.output_gradient),
    }
}

type Stack<B> = fn(Tensor<B, 4>, &[ConvBlock<B>], Statistics<B>, StackOptions) -> StackOutput<B>;

#[derive(Debug, PartialEq)]
struct Outcome {
    dims: [usize; 4],
    features: Vec<f32>,
    /// Mean and variance of every block.
    moments: Vec<[Vec<f32>; 2]>,
    gradients: HashMap<String, Vec<f32>>,
}

fn read<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().into_vec().unwrap()
}

fn read_all<B: Backend>(tensors: Vec<(String, Tensor<B, 1>)>) -> HashMap<String, Vec<f32>> {
    tensors.into_iter().map(|(name, tensor)| (name, read(tensor))).collect()
}

fn run<B: AutodiffBackend>(
    network: &Network,
    stack: Stack<B>,
    tracked: impl Fn(&str) -> bool,
) -> Outcome {
    let leaves = Leaves::new(network, tracked);
    let StackOutput { features, moments } = leaves.forward(network, stack);
    let loss = leaves.loss(features.clone());
    let gradients = read_all::<B::InnerBackend>(leaves.gradients(&loss.backward()));
    Outcome {
        dims: features.dims(),
        features: read(features),
        moments: moments.into_iter().map(|pair| [read(pair.mean), read(pair.variance)]).collect(),
        gradients,
    }
}

fn all_but_output_gradient(name: &str) -> bool {
    name != "output_gradient"
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, value| most.max(value.abs()))
}

fn assert_close(what: &str, found: &[f32], expected: &[f32], bound: f32) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        assert!(error <= bound, "{what}[{index}] is {found}, not {expected} (within {bound:e})");
    }
}

/// Equal up to `tolerance` times the largest value of each tensor.
///
/// A gradient far smaller than the others is a sum of terms that cancel, and its rounding is that of
/// the terms: nothing is judged more strictly than a twentieth of the largest gradient, and what
/// vanishes in exact arithmetic, by the largest one.
fn assert_gradients(
    what: &str,
    found: &HashMap<String, Vec<f32>>,
    expected: &HashMap<String, Vec<f32>>,
    tolerance: f32,
    vanishes: impl Fn(&str) -> bool,
) {
    let names = |of: &HashMap<String, Vec<f32>>| {
        let mut names: Vec<_> = of.keys().cloned().collect();
        names.sort();
        names
    };
    assert_eq!(names(found), names(expected), "{what}");
    let all = expected.values().map(|values| largest(values)).fold(0.0, f32::max);
    for (name, expected) in expected {
        let scale = if vanishes(name) { all } else { largest(expected).max(all / 20.0) };
        assert_close(&format!("{what}, {name}"), &found[name], expected, tolerance * scale);
    }
}

/// A bias before batch statistics changes nothing.
fn vanishes_under_batch_statistics(name: &str) -> bool {
    name.ends_with("conv.bias")
}

/// `stack` on `B` gives what the reference gives on the judge.
fn assert_equal_to_judge<B: AutodiffBackend>(network: &Network, stack: Stack<B>) {
    let what = &network.name;
    let expected = run::<Judge>(network, reference::conv_stack, all_but_output_gradient);
    assert!(expected.gradients.values().any(|values| largest(values) > 0.0), "{what}");
    let found = run::<B>(network, stack, all_but_output_gradient);
    assert_eq!(found.dims, expected.dims, "{what}");
    let bound = VALUES * largest(&expected.features);
    assert_close(&format!("{what}, features"), &found.features, &expected.features, bound);
    let blocks = if network.running.is_some() { 0 } else { network.layers.len() };
    assert_eq!([found.moments.len(), expected.moments.len()], [blocks; 2], "{what}");
    for (found, expected) in found.moments.iter().zip(&expected.moments) {
        let variance = largest(&expected[1]);
        let bound = VALUES * variance.sqrt();
        assert_close(&format!("{what}, mean"), &found[0], &expected[0], bound);
        assert_close(&format!("{what}, variance"), &found[1], &expected[1], VALUES * variance);
    }
    let batch = network.running.is_none();
    assert_gradients(what, &found.gradients, &expected.gradients, GRADIENTS, |name| {
        batch && vanishes_under_batch_statistics(name)
    });
}

fn assert_equal_under_both_statistics<B: AutodiffBackend>(network: Network) {
    assert_equal_to_judge::<B>(&network, conv_stack);
    assert_equal_to_judge::<B>(&network.with_running(), conv_stack);
}

mod laws {
    use super::*;

    pub use lanes::a_stack_of_lanes_is_its_lanes;
    pub use second::directional_derivatives_equal_two_levels_of_autodiff;
    pub use second::nothing_of_a_directional_derivative_is_tracked;
    pub use second::second_gradients_equal_the_reference;

    pub fn awkward_channel_counts_equal_the_reference<B: AutodiffBackend>() {
        for (channels, seed) in [(1, 1), (3, 2), (31, 3), (33, 4)] {
            let specs = [(channels, 1, true), (36 - channels, 1, true)];
            let network = Network::new(seed, [3, channels, 9, 11], &specs);
            assert_equal_under_both_statistics::<B>(network);
        }
    }

    pub fn odd_sizes_equal_the_reference<B: AutodiffBackend>() {
        let blocks: [&[Spec]; 4] = [
            &[(7, 1, true)],
            &[(7, 1, false)],
            &[(7, 2, false), (5, 1, true)],
            &[(9, 1, false), (4, 2, true), (6, 1, false)],
        ];
        for (seed, specs) in (10..).zip(blocks) {
            for (n, h, w) in [(1, 5, 7), (4, 5, 7), (2, 9, 11)] {
                let network = Network::new(seed, [n, 3, h, w], specs);
                assert_equal_under_both_statistics::<B>(network);
            }
        }
    }

    pub fn many_images_equal_the_reference<B: AutodiffBackend>() {
        for n in [8, 9, 10, 16, 17, 31, 70] {
            let network = Network::new(15, [n, 2, 5, 7], &[(4, 1, true), (4, 1, true)]);
            assert_equal_under_both_statistics::<B>(network);
            let network = Network::new(16, [n, 3, 7, 6], &[(5, 2, false), (18, 1, false)]);
            assert_equal_under_both_statistics::<B>(network);
        }
    }

    pub fn the_order_of_images_changes_no_other_feature<B: AutodiffBackend>() {
        for n in [6, 10, 20] {
            let network = Network::new(17, [n, 2, 5, 7], &[(4, 1, true), (4, 1, true)]);
            for network in [network.clone(), network.with_running()] {
                let leaves = Leaves::<B::InnerBackend>::new(&network, |_| false);
                let blocks = leaves.blocks(&network);
                let features = |images| {
                    let statistics = network.statistics();
                    conv_stack(images, &blocks, statistics, network.options()).features
                };
                let images = leaves.images(&network);
                let expected = read(features(images.clone()).flip([0]));
                let found = read(features(images.flip([0])));
                let bound = VALUES * largest(&expected);
                assert_close(&network.name, &found, &expected, bound);
            }
        }
    }

    pub fn three_blocks_down_to_a_pixel_equal_the_reference<B: AutodiffBackend>() {
        let network = Network::new(20, [5, 1, 9, 11], &[(17, 1, true); 3]);
        assert_eq!(network.output_gradient.shape.as_slice(), [5, 17, 1, 1]);
        assert_equal_under_both_statistics::<B>(network);
    }

    pub fn one_row_and_one_column_equal_the_reference<B: AutodiffBackend>() {
        for (h, w) in [(1, 6), (6, 1), (1, 1)] {
            let network = Network::new(21, [9, 2, h, w], &[(5, 1, false), (3, 2, false)]);
            assert_equal_under_both_statistics::<B>(network);
        }
    }

    pub fn absent_vectors_equal_the_reference<B: AutodiffBackend>() {
        for keep in [[false; 3], [false, true, true], [true, false, true], [true, true, false]] {
            let network = Network::new(30, [3, 2, 7, 6], &[(5, 1, true), (6, 1, false)]);
            assert_equal_under_both_statistics::<B>(network.with_vectors(keep));
        }
    }

    pub fn extreme_gains_equal_the_reference<B: AutodiffBackend>() {
        // A gain of zero with a positive shift makes all values of a pool window equal.
        let gamma = [-1.5, 0.0, 0.0, 1e-12, -0.0, 2.0, -1e-3];
        let beta = [0.3, 0.4, -0.4, 0.0, 0.1, -0.2, 0.0];
        for (seed, pool) in [(40, true), (41, false)] {
            let network = Network::new(seed, [4, 3, 8, 9], &[(9, 1, pool), (7, 1, pool)]);
            assert_equal_under_both_statistics::<B>(network.with_affine(&gamma, &beta));
        }
    }

    pub fn permuted_tensors_equal_the_reference<B: AutodiffBackend>() {
        let specs = [(5, 1, true), (6, 2, false)];
        let network = Network::laid_out(Layout::Permuted, 50, [3, 4, 7, 8], &specs);
        assert_equal_under_both_statistics::<B>(network);
    }

    pub fn expanded_tensors_equal_the_reference<B: AutodiffBackend>() {
        let specs = [(5, 1, true), (6, 2, false)];
        let network = Network::laid_out(Layout::Expanded, 51, [3, 4, 7, 8], &specs);
        assert_equal_under_both_statistics::<B>(network);
    }

    pub fn epsilon_equals_the_reference<B: AutodiffBackend>() {
        let mut network = Network::new(52, [3, 2, 6, 6], &[(4, 1, true)]);
        network.epsilon = 0.5;
        assert_equal_under_both_statistics::<B>(network);
    }

    pub fn the_reference_is_that_of_flex<B: AutodiffBackend>() {
        let of = |seed, h, w, specs: &[Spec]| Network::new(seed, [2, 3, h, w], specs);
        let specs = [(3, 1, true), (2, 1, false)];
        let laid_out = |layout| Network::laid_out(layout, 63, [2, 3, 5, 7], &specs);
        for network in [
            of(60, 5, 7, &[(3, 1, true), (2, 1, true)]),
            of(61, 7, 4, &[(2, 1, false), (3, 1, true)]),
            // Candle cannot differentiate a stride over one odd and one even side.
            of(62, 5, 7, &[(2, 2, false), (3, 1, true)]),
            laid_out(Layout::Permuted),
            laid_out(Layout::Expanded),
        ] {
            assert_equal_to_judge::<B>(&network, reference::conv_stack);
            assert_equal_to_judge::<B>(&network.with_running(), reference::conv_stack);
        }
    }

    pub fn values_and_gradients_are_those_of_pytorch<B: AutodiffBackend>() {
        let golden = Golden::read();
        for variant in ["pool", "stride"] {
            for statistics in ["running", "batch"] {
                let network = golden.network(variant, statistics);
                let found = run::<B>(&network, conv_stack, all_but_output_gradient);
                let path = format!("{variant}/{statistics}");
                let output = golden.values(&format!("{path}/output"));
                assert_close(&path, &found.features, &output, VALUES * largest(&output));
                let batch = statistics == "batch";
                assert_eq!(found.moments.len(), if batch { 2 } else { 0 });
                for (block, moments) in found.moments.iter().enumerate() {
                    for (name, moments) in ["mean", "variance"].iter().zip(moments) {
                        let path = format!("{path}/{name}/{block}");
                        let expected = golden.values(&path);
                        assert_close(&path, moments, &expected, VALUES * largest(&expected));
                    }
                }
                let expected = golden.gradients(&format!("{path}/gradient/"));
                assert_gradients(&path, &found.gradients, &expected, GRADIENTS, |name| {
                    batch && vanishes_under_batch_statistics(name)
                });
            }
        }
    }

    pub fn second_derivatives_with_pools_are_those_of_pytorch<B: AutodiffBackend>() {
        assert_second_derivatives::<B>("pool");
    }

    pub fn second_derivatives_with_strides_are_those_of_pytorch<B: AutodiffBackend>() {
        assert_second_derivatives::<B>("stride");
    }

    fn assert_second_derivatives<B: AutodiffBackend>(variant: &str) {
        let golden = Golden::read();
        let network = golden.network(variant, "batch");
        let inner = Leaves::<B>::new(&network, |_| true);
        let outer = lifted(&inner);
        let loss = outer.loss(outer.forward(&network, conv_stack).features);
        let first = outer.gradients(&loss.backward());
        let squares = first
            .into_iter()
            .filter(|(name, _)| name.starts_with("blocks"))
            .map(|(_, gradient)| (gradient.clone() * gradient).sum())
            .collect::<Vec<_>>();
        assert_eq!(squares.len(), 8);
        let sum = Tensor::cat(squares, 0).sum();

        let path = format!("{variant}/second");
        let expected = golden.values(&format!("{path}/loss"));
        assert_close(&path, &read(sum.clone()), &expected, SECOND * largest(&expected));
        let mut found = read_all::<B::InnerBackend>(inner.gradients(&sum.backward()));
        let expected = golden.gradients(&format!("{path}/gradient/"));
        let vanishes = |name: &str| largest(&expected[name]) == 0.0;
        for name in expected.keys().filter(|name| vanishes(name)) {
            // What nothing depends on may have no gradient at all.
            found.entry(name.clone()).or_insert_with(|| vec![0.0; expected[name].len()]);
        }
        assert_gradients(&path, &found, &expected, SECOND, vanishes);
    }

    pub fn frozen_tensors_have_no_gradient_and_change_no_other<B: AutodiffBackend>() {
        let network = Network::new(70, [3, 2, 6, 7], &[(4, 1, true), (3, 1, false)]);
        let all = run::<B>(&network, conv_stack, all_but_output_gradient);
        assert_eq!(all.gradients.len(), 9);
        for part in ["input", "blocks", "conv.weight", "blocks.1.norm.bias", "blocks.0.conv.bias"] {
            let some = run::<B>(&network, conv_stack, |name| name.contains(part));
            let expected = all.gradients.clone().into_iter();
            let expected: HashMap<_, _> =
                expected.filter(|(name, _)| name.contains(part)).collect();
            assert!(!expected.is_empty());
            assert_gradients(
                part,
                &some.gradients,
                &expected,
                1e-6,
                vanishes_under_batch_statistics,
            );
            assert_eq!(some.features, all.features);
        }
    }

    pub fn features_without_autodiff_are_those_with_it<B: AutodiffBackend>() {
        let of = |n| Network::new(71, [n, 2, 6, 7], &[(4, 1, true), (3, 1, false)]);
        for network in [of(3), of(3).with_running(), of(25), of(25).with_running()] {
            let tracked = run::<B>(&network, conv_stack, all_but_output_gradient);
            let plain = Leaves::<B::InnerBackend>::new(&network, |_| false);
            let plain = plain.forward(&network, conv_stack);
            let scale = VALUES * largest(&tracked.features);
            assert_close("features", &read(plain.features), &tracked.features, scale);
            assert_eq!(plain.moments.len(), tracked.moments.len());
            for (found, expected) in plain.moments.into_iter().zip(&tracked.moments) {
                assert_close("mean", &read(found.mean), &expected[0], VALUES);
                assert_close("variance", &read(found.variance), &expected[1], 3.0 * VALUES);
            }
        }
    }

    pub fn graphs_that_share_parameters_are_differentiated_one_by_one<B: AutodiffBackend>() {
        let specs = [(4, 1, true), (3, 1, false)];
        let first = Network::new(72, [3, 2, 6, 7], &specs);
        let second =
            Network { images: Network::new(73, [3, 2, 6, 7], &specs).images, ..first.clone() };
        let alone = [&first, &second]
            .map(|network| run::<B>(network, conv_stack, |name| name.starts_with("blocks")));
        assert_ne!(alone[0].gradients, alone[1].gradients);

        let leaves = Leaves::<B>::new(&first, |name| name.starts_with("blocks"));
        let other = Leaves::<B>::new(&second, |_| false);
        let blocks = leaves.blocks(&first);
        let loss = |images| {
            let output = conv_stack(images, &blocks, Statistics::Batch, first.options());
            leaves.loss(output.features)
        };
        let losses = [loss(leaves.images(&first)), loss(other.images(&second))];
        for (loss, alone) in losses.iter().zip(&alone) {
            let found = read_all::<B::InnerBackend>(leaves.gradients(&loss.clone().backward()));
            let expected = &alone.gradients;
            assert_gradients("one of two", &found, expected, 1e-6, vanishes_under_batch_statistics);
        }

        let both = loss(leaves.images(&first)) + loss(other.images(&second));
        let found = read_all::<B::InnerBackend>(leaves.gradients(&both.backward()));
        let sum = alone[0].gradients.iter().map(|(name, values)| {
            let other = &alone[1].gradients[name];
            (name.clone(), values.iter().zip(other).map(|(one, two)| one + two).collect())
        });
        assert_gradients("sum", &found, &sum.collect(), GRADIENTS, vanishes_under_batch_statistics);
    }

    pub fn moments_are_detached<B: AutodiffBackend>() {
        let network = Network::new(74, [3, 2, 6, 7], &[(4, 1, true)]);
        let leaves = Leaves::<B>::new(&network, |_| true);
        let output = leaves.forward(&network, conv_stack);
        let [moments] = &output.moments[..] else { panic!("one block has one pair of moments") };
        // The moments take part in the sum; their share of the gradient would show.
        let sum = moments.mean.clone().sum() + moments.variance.clone().sum();
        let loss = leaves.loss(output.features) + sum * 1000.0;
        let found = read_all::<B::InnerBackend>(leaves.gradients(&loss.backward()));
        let expected = run::<B>(&network, conv_stack, |_| true).gradients;
        assert_gradients("features", &found, &expected, 1e-6, vanishes_under_batch_statistics);
    }
}

/// Values from PyTorch; `tests/golden/conv4.py` has made them.
#[derive(serde::Deserialize)]
struct Golden {
    epsilon: f64,
    cases: HashMap<String, GoldenTensor>,
}

#[derive(serde::Deserialize)]
struct GoldenTensor {
    shape: Vec<usize>,
    data: Vec<f64>,
}

impl Golden {
    fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/conv4.json");
        serde_json::from_reader(std::fs::File::open(path).unwrap()).unwrap()
    }

    fn values(&self, name: &str) -> Vec<f32> {
        self.cases[name].data.iter().map(|&value| value as f32).collect()
    }

    fn tensor(&self, name: &str) -> TensorData {
        TensorData::new(self.values(name), self.cases[name].shape.clone())
    }

    fn gradients(&self, prefix: &str) -> HashMap<String, Vec<f32>> {
        let names = self.cases.keys().filter_map(|name| name.strip_prefix(prefix));
        names.map(|name| (name.to_string(), self.values(&format!("{prefix}{name}")))).collect()
    }

    fn network(&self, variant: &str, statistics: &str) -> Network {
        let pool = variant == "pool";
        let state = |block: usize, name: &str| {
            self.tensor(&format!("{variant}/state/blocks.{block}.{name}"))
        };
        let layer = |block| Layer {
            weight: state(block, "conv.weight"),
            vectors: VECTORS.map(|name| Some(state(block, name))),
            channels: 5,
            stride: if pool { 1 } else { 2 },
            pool,
        };
        let moments = |block| [state(block, "norm.running_mean"), state(block, "norm.running_var")];
        Network {
            name: format!("{variant}/{statistics}"),
            images: self.tensor(&format!("{variant}/input")),
            count: 6,
            layers: vec![layer(0), layer(1)],
            running: (statistics == "running").then(|| vec![moments(0), moments(1)]),
            output_gradient: self.tensor(&format!("{variant}/output_gradient")),
            layout: Layout::Contiguous,
            epsilon: self.epsilon,
        }
    }
}

macro_rules! on_backend {
    ($backend:ident, $feature:literal, $type:ty: $($law:ident)*) => {
        #[cfg(feature = $feature)]
        #[allow(deprecated)]
        mod $backend {
            type Differentiable = burn::backend::Autodiff<$type>;
            $(
                #[test]
                fn $law() {
                    super::laws::$law::<Differentiable>();
                }
            )*
        }
    };
}

macro_rules! laws {
    (every { $($every:ident)* } fused { $($fused:ident)* } but_candle { $($strided:ident)* }) => {
        on_backend!(flex, "flex", burn::backend::Flex: $($every)* $($fused)* $($strided)*);
        on_backend!(ndarray, "ndarray", burn::backend::NdArray: $($every)* $($fused)* $($strided)*);
        on_backend!(candle, "candle", burn::backend::Candle: $($every)* $($fused)*);
        on_backend!(wgpu, "wgpu", burn::backend::Wgpu: $($every)* $($strided)*);
    };
}

laws! {
    every {
        values_and_gradients_are_those_of_pytorch
        the_reference_is_that_of_flex
        second_derivatives_with_pools_are_those_of_pytorch
        features_without_autodiff_are_those_with_it
        frozen_tensors_have_no_gradient_and_change_no_other
        moments_are_detached
        the_order_of_images_changes_no_other_feature
        a_stack_of_lanes_is_its_lanes
        nothing_of_a_directional_derivative_is_tracked
    }
    fused {
        awkward_channel_counts_equal_the_reference
        odd_sizes_equal_the_reference
        many_images_equal_the_reference
        three_blocks_down_to_a_pixel_equal_the_reference
        one_row_and_one_column_equal_the_reference
        absent_vectors_equal_the_reference
        extreme_gains_equal_the_reference
        permuted_tensors_equal_the_reference
        expanded_tensors_equal_the_reference
        epsilon_equals_the_reference
        graphs_that_share_parameters_are_differentiated_one_by_one
        second_gradients_equal_the_reference
        directional_derivatives_equal_two_levels_of_autodiff
    }
    but_candle { second_derivatives_with_strides_are_those_of_pytorch }
}

#[cfg(feature = "flex")]
mod on_flex {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
    use burn::tensor::{DType, FloatDType};
    use fewshot_kernels::conv_stack::StackError;
    use fewshot_kernels::{Route, route};

    use super::*;

    type Balanced = Autodiff<Flex, BalancedCheckpointing>;

    #[test]
    fn two_levels_of_autodiff_are_fused_and_three_are_not() {
        type Nested = Autodiff<Autodiff<Flex>>;
        assert!(matches!(route::<Flex>(), Route::Host(_)));
        assert!(matches!(route::<Autodiff<Flex>>(), Route::Host(_)));
        assert!(matches!(route::<Balanced>(), Route::Host(_)));
        assert!(matches!(route::<Nested>(), Route::Host(_)));
        assert!(matches!(route::<Autodiff<Balanced>>(), Route::Host(_)));
        assert_eq!(route::<Autodiff<Nested>>(), Route::Reference);
    }

    #[test]
    fn checkpointing_changes_no_bit() {
        let network = Network::new(80, [3, 2, 9, 7], &[(5, 1, true), (4, 2, false)]);
        let found = run::<Balanced>(&network, conv_stack, all_but_output_gradient);
        let expected = run::<Autodiff<Flex>>(&network, conv_stack, all_but_output_gradient);
        assert_eq!(found, expected);
    }

    #[test]
    fn the_number_of_threads_changes_no_bit() {
        let specs = [(33, 1, true), (32, 1, true), (17, 2, false)];
        for n in [1, 3, 21] {
            let network = Network::new(81, [n, 3, 15, 14], &specs);
            for network in [network.clone(), network.with_running()] {
                let [one, two, three] = [1, 2, 3].map(|threads| {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
                    pool.build().unwrap().install(|| {
                        run::<Autodiff<Flex>>(&network, conv_stack, all_but_output_gradient)
                    })
                });
                assert_eq!(one.gradients.len(), 13);
                assert!(one == two && one == three, "{n} images");
            }
        }
    }

    #[test]
    fn doubles_take_the_reference() {
        let network = Network::new(82, [2, 2, 6, 5], &[(3, 1, true)]);
        let leaves = Leaves::<Flex>::new(&network, |_| false);
        let double = |vector: Option<Tensor<Flex, 1>>| vector.map(|vector| vector.cast(DType::F64));
        let blocks = leaves.blocks(&network).into_iter().map(|block| ConvBlock {
            weight: block.weight.cast(DType::F64),
            bias: double(block.bias),
            gamma: double(block.gamma),
            beta: double(block.beta),
            ..block
        });
        let blocks: Vec<_> = blocks.collect();
        let images = leaves.images(&network).cast(DType::F64);
        let found =
            conv_stack(images, &blocks, Statistics::Batch, StackOptions::default()).features;
        assert_eq!(found.dtype(), DType::F64);
        let expected = read(leaves.forward(&network, conv_stack).features);
        let found = read(found.cast(DType::F32));
        assert_close("features", &found, &expected, VALUES * largest(&expected));
    }

    #[test]
    fn half_precision_is_that_of_its_rounded_elements() {
        // A rounding of the images and one of the features, relative to the largest.
        for (dtype, bound) in [(FloatDType::BF16, 1.0 / 256.0), (FloatDType::F16, 1.0 / 2048.0)] {
            for running in [false, true] {
                let network = Network::new(83, [5, 3, 9, 8], &[(6, 1, true), (4, 1, false)]);
                let network = if running { network.with_running() } else { network };
                let leaves = Leaves::<Autodiff<Flex>>::new(&network, |_| true);
                let blocks = leaves.blocks(&network);
                let run = |images: Tensor<Autodiff<Flex>, 4>| {
                    let statistics = network.statistics();
                    conv_stack(images, &blocks, statistics, network.options())
                };
                let half = run(leaves.images(&network).cast(dtype));
                assert_eq!(half.features.dtype(), dtype.into());
                let rounded = leaves.images(&network).cast(dtype).cast(FloatDType::F32);
                let full = run(rounded);
                for (half, full) in half.moments.iter().zip(&full.moments) {
                    assert_eq!(read(half.mean.clone()), read(full.mean.clone()));
                }
                let expected = read(full.features.clone());
                let found = half.features.clone().cast(FloatDType::F32);
                assert_close(
                    "features",
                    &read(found.clone()),
                    &expected,
                    bound * largest(&expected),
                );
                let gradients = |features| {
                    let gradients = leaves.gradients(&leaves.loss(features).backward());
                    let blocks = gradients.into_iter().filter(|(name, _)| name.contains("blocks"));
                    read_all::<Flex>(blocks.collect())
                };
                let (found, expected) = (gradients(found), gradients(full.features));
                assert_eq!(found.len(), 8);
                assert_gradients("half", &found, &expected, 2.0 * bound, |name| {
                    !running && vanishes_under_batch_statistics(name)
                });
            }
        }
    }

    #[test]
    fn blocks_may_be_of_half_precision() {
        let network = Network::new(84, [3, 2, 7, 6], &[(5, 1, true)]);
        let leaves = Leaves::<Autodiff<Flex>>::new(&network, |_| false);
        let block = leaves.blocks(&network).remove(0);
        let weight = block.weight.cast(FloatDType::BF16).require_grad();
        let gamma = block.gamma.map(|gamma| gamma.cast(FloatDType::BF16).require_grad());
        let block = ConvBlock { weight: weight.clone(), gamma: gamma.clone(), ..block };
        let images = leaves.images(&network);
        let output = conv_stack(images, &[block], Statistics::Batch, network.options());
        assert_eq!(output.features.dtype(), DType::F32);
        let gradients = leaves.loss(output.features).backward();
        let weight = weight.grad(&gradients).expect("it is tracked");
        assert_eq!(weight.dtype(), DType::BF16);
        assert!(largest(&read(weight.cast(FloatDType::F32))) > 0.0);
        assert_eq!(gamma.and_then(|g| g.grad(&gradients)).map(|g| g.dtype()), Some(DType::BF16));
    }

    fn tensor<const D: usize>(shape: [usize; D]) -> Tensor<Flex, D> {
        Tensor::ones(shape, &Default::default())
    }

    fn block(c: usize, out: usize) -> ConvBlock<Flex> {
        let vector = || Some(tensor([out]));
        ConvBlock {
            weight: tensor([out, c, 3, 3]),
            bias: vector(),
            gamma: vector(),
            beta: vector(),
            stride: 1,
            pool: true,
        }
    }

    fn moments(mean: usize, variance: usize) -> Moments<Flex> {
        Moments { mean: tensor([mean]), variance: tensor([variance]) }
    }

    fn assert_refused(
        images: [usize; 4],
        blocks: &[ConvBlock<Flex>],
        statistics: Statistics<Flex>,
        wanted: StackError,
    ) {
        let images = tensor(images);
        let call =
            AssertUnwindSafe(|| conv_stack(images, blocks, statistics, StackOptions::default()));
        let panic = catch_unwind(call).expect_err("a stack that does not fit");
        let message = panic.downcast_ref::<String>().expect("a message with numbers");
        assert_eq!(*message, wanted.to_string());
    }

    const IMAGES: [usize; 4] = [2, 3, 8, 8];

    #[test]
    fn a_stack_needs_blocks_and_images() {
        assert_refused(IMAGES, &[], Statistics::Batch, StackError::Empty);
        let blocks = [block(3, 4)];
        assert_refused([0, 3, 8, 8], &blocks, Statistics::Batch, StackError::NoImages);
    }

    #[test]
    fn a_weight_must_take_the_channels_that_arrive() {
        let blocks = [block(3, 4), block(5, 4)];
        let wanted = StackError::Weight { block: 1, channels: 4, found: [4, 5, 3, 3] };
        assert_refused(IMAGES, &blocks, Statistics::Batch, wanted);
        let wide = ConvBlock { weight: tensor([4, 3, 5, 5]), ..block(3, 4) };
        let wanted = StackError::Weight { block: 0, channels: 3, found: [4, 3, 5, 5] };
        assert_refused(IMAGES, &[wide], Statistics::Batch, wanted);
    }

    #[test]
    fn a_vector_must_have_a_value_a_channel() {
        let short = || Some(tensor([3]));
        let blocks = [
            ("bias", ConvBlock { bias: short(), ..block(3, 4) }),
            ("gamma", ConvBlock { gamma: short(), ..block(3, 4) }),
            ("beta", ConvBlock { beta: short(), ..block(3, 4) }),
        ];
        for (name, block) in blocks {
            let wanted = StackError::Vector { block: 0, name, wanted: 4, found: 3 };
            assert_refused(IMAGES, &[block], Statistics::Batch, wanted);
        }
        for (name, moments) in
            [("running mean", moments(1, 4)), ("running variance", moments(4, 1))]
        {
            let wanted = StackError::Vector { block: 0, name, wanted: 4, found: 1 };
            assert_refused(IMAGES, &[block(3, 4)], Statistics::Running(vec![moments]), wanted);
        }
    }

    #[test]
    fn strides_are_one_or_two() {
        for stride in [0, 3] {
            let block = ConvBlock { stride, ..block(3, 4) };
            let wanted = StackError::Stride { block: 0, stride };
            assert_refused(IMAGES, &[block], Statistics::Batch, wanted);
        }
    }

    #[test]
    fn an_image_must_outlast_the_blocks() {
        let blocks = [block(3, 4), block(4, 4), block(4, 4)];
        let wanted = StackError::TooSmall { block: 2, height: 1, width: 2 };
        assert_refused([1, 3, 5, 8], &blocks, Statistics::Batch, wanted);
    }

    #[test]
    fn running_moments_must_be_given_for_every_block() {
        let statistics = Statistics::Running(vec![moments(4, 4)]);
        let wanted = StackError::Moments { blocks: 2, found: 1 };
        assert_refused(IMAGES, &[block(3, 4), block(4, 4)], statistics, wanted);
    }

    #[test]
    fn channels_must_be_shared_out_among_the_lanes() {
        for (lanes, name, channels) in
            [(2, "the images", 3), (0, "the images", 3), (3, "block 0", 4)]
        {
            let options = StackOptions { lanes, ..Default::default() };
            let blocks = [block(1, 4)];
            let call = || conv_stack(tensor(IMAGES), &blocks, Statistics::Batch, options);
            let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("lanes do not fit");
            let message = panic.downcast_ref::<String>().expect("a message with numbers");
            assert_eq!(
                *message,
                StackError::Lanes { name: name.into(), channels, lanes }.to_string()
            );
        }
    }
}
