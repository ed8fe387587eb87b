//! Context parameters: what they modulate, in value, gradient and second derivative, and in lanes.

use burn::nn::conv::Conv2d;
use burn::tensor::Shape;
use burn::tensor::activation::relu;
use burn::tensor::module::{conv2d, max_pool2d};
use burn::tensor::ops::ConvOptions;

use super::second_derivatives::{differences_by, tensor};
use super::weights_from_elsewhere::carried;
use super::*;

type State = BTreeMap<String, Vec<f32>>;

fn conv4_config() -> Conv4Config {
    Conv4Config::new([2, 8, 9]).with_channels(3).with_blocks(2)
}

fn conv4<B: Backend>(config: &Conv4Config) -> Conv4<B> {
    B::seed(&Default::default(), 21);
    config.init(&Default::default())
}

fn mlp<B: Backend>(context: usize) -> Mlp<B> {
    B::seed(&Default::default(), 22);
    let config = MlpConfig::new(4).with_layers(vec![5, 3]).with_context(context);
    config.init(&Default::default())
}

/// Walks along a module's tensors with their names.
struct Walk<F> {
    path: Vec<String>,
    each: F,
}

impl<F> Walk<F> {
    fn new(each: F) -> Self {
        Self { path: Vec::new(), each }
    }
}

impl<B: Backend, F: FnMut(String, Shape) -> Vec<f32>> ModuleMapper<B> for Walk<F> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let mut dims = param.dims();
        let values = (self.each)(self.path.join("."), param.shape());
        dims[0] = values.len() / dims[1..].iter().product::<usize>();
        Param::initialized(param.id, tensor(values, dims).require_grad())
    }
}

/// `module` with these values; several times as many of each are those of lanes.
fn with_state<B: Backend, M: Module<B>>(module: M, state: &State) -> M {
    module.map(&mut Walk::new(|name, _| state[&name].clone()))
}

/// Values of their own for all tensors of `module`, far from where they begin. Shifts are positive,
/// so that something is left of every block by its ReLU.
fn any_state<B: Backend>(module: impl Module<B>, seed: u64) -> State {
    let mut state = State::new();
    module.map(&mut Walk::new(|name: String, shape: Shape| {
        let values = uniform::<Flex, 1>(seed + state.len() as u64, [shape.num_elements()]);
        let positive = ["running", "norm.beta", "map.bias"].iter().any(|part| name.contains(part));
        let values = if positive { values.abs() + 0.5 } else { values };
        state.insert(name, read(values.clone()));
        read(values)
    }));
    state
}

/// Collects the gradients by name.
struct Collect<'a, B: AutodiffBackend> {
    path: Vec<String>,
    gradients: &'a B::Gradients,
    found: BTreeMap<String, Tensor<B::InnerBackend, 1>>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Collect<'_, B> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = param.val().grad(self.gradients) {
            let length = gradient.shape().num_elements();
            self.found.insert(self.path.join("."), gradient.reshape([length]));
        }
    }
}

fn gradients<B: AutodiffBackend>(
    module: &impl Module<B>,
    gradients: &B::Gradients,
) -> BTreeMap<String, Tensor<B::InnerBackend, 1>> {
    let mut collect = Collect { path: Vec::new(), gradients, found: BTreeMap::new() };
    module.visit(&mut collect);
    collect.found
}

fn assert_not_flat(what: &str, gradient: &[f32]) {
    assert!(gradient.iter().any(|value| value.abs() > 1e-2), "{what}: {gradient:?}");
}

/// A loss that is curved in every feature.
fn loss<B: Backend, const D: usize>(features: Tensor<B, D>) -> Tensor<B, 1> {
    (features.clone() * features.clone() * features).sum() / 3.0
}

mod at_zero {
    use super::*;

    #[test]
    fn a_conv4_with_scales_of_one_and_no_shifts_is_the_one_without() {
        for blocks in [1, 2, 4] {
            let config = Conv4Config::new([2, 16, 17]).with_channels(3).with_blocks(blocks);
            let plain: Conv4<Flex> = conv4(&config);
            let contextual: Conv4<Flex> = conv4(&config.with_context(4));
            let mut values = state(&contextual);
            values.insert("film.map.bias".to_owned(), vec![1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
            let contextual = with_state(contextual, &values);
            let mut rest = state(&contextual);
            rest.retain(|name, _| !name.starts_with("film."));
            assert_eq!(rest, state(&plain));
            let images = || uniform(1, [3, 2, 16, 17]);
            for statistics in [BnStatistics::Batch, BnStatistics::Running, BnStatistics::Track] {
                let expected = plain.encode(images(), statistics).into_data();
                contextual.encode(images(), statistics).into_data().assert_eq(&expected, true);
            }
        }
    }

    #[test]
    fn a_film_is_drawn_within_its_bounds() {
        let film = FilmConfig::new(12, 100).init::<Flex>(&Default::default());
        assert_eq!(read(film.context.val()), [0.0; 12]);
        let largest = |values: Vec<f32>| values.into_iter().map(f32::abs).fold(0.0, f32::max);
        let weight = largest(read(film.map.weight.val()));
        assert!((0.49..=0.5).contains(&weight), "the weight is within sqrt(3 / 12): {weight}");
        let bias = largest(read(film.map.bias.as_ref().unwrap().val()));
        assert!((0.27..=0.2887).contains(&bias), "the bias is within 1 / sqrt(12): {bias}");
    }

    #[test]
    fn an_mlp_is_the_one_without() {
        let contextual: Mlp<Flex> = mlp(2);
        let mut values = state(&contextual);
        assert_eq!(values.remove("context"), Some(vec![0.0; 2]));
        values.get_mut("layers.0.weight").unwrap().truncate(4 * 5);
        let plain = with_state(mlp::<Flex>(0), &values);
        let x = uniform(2, [6, 4]);
        assert_close("y", &read(contextual.forward(x.clone())), &read(plain.forward(x)), 1e-6);
    }

    #[test]
    fn the_context_has_a_gradient() {
        let module: Conv4<Once> = conv4(&conv4_config().with_context(4));
        let features = module.encode(uniform(3, [4, 2, 8, 9]), BnStatistics::Batch);
        let found = gradients(&module, &loss(features).backward());
        assert!(read(found["film.context"].clone()).iter().all(|value| value.abs() > 1e-4));
    }
}

mod beside_plain_operations {
    use super::*;

    /// Leaves of the graph, flat, by the names of a module's parameters.
    struct Leaves(BTreeMap<String, Tensor<Once, 1>>);

    impl Leaves {
        fn new(state: &State) -> Self {
            let leaf = |values: &Vec<f32>| tensor(values.clone(), [values.len()]).require_grad();
            Self(state.iter().map(|(name, values)| (name.clone(), leaf(values))).collect())
        }

        fn get(&self, name: impl AsRef<str>) -> Tensor<Once, 1> {
            self.0[name.as_ref()].clone()
        }

        /// The values of a vector, one a channel.
        fn channels(&self, name: &str) -> Tensor<Once, 4> {
            let value = self.get(name);
            let channels = value.dims()[0];
            value.reshape([1, channels, 1, 1])
        }
    }

    fn normalised(x: Tensor<Once, 4>) -> Tensor<Once, 4> {
        let mean = |x: Tensor<Once, 4>| x.mean_dim(0).mean_dim(2).mean_dim(3);
        let x = x.clone() - mean(x);
        x.clone() / (mean(x.clone() * x) + 1e-5).sqrt()
    }

    fn modulated(x: Tensor<Once, 4>, leaves: &Leaves) -> Tensor<Once, 4> {
        let channels = x.dims()[1];
        let context: Tensor<Once, 2> = leaves.get("film.context").unsqueeze();
        let [_, size] = context.dims();
        let weight = leaves.get("film.map.weight").reshape([size, 2 * channels]);
        let both = context.matmul(weight).reshape([2 * channels]) + leaves.get("film.map.bias");
        let [scale, shift] = [0, channels]
            .map(|first| both.clone().slice(first..first + channels).reshape([1, channels, 1, 1]));
        scale * x + shift
    }

    fn encode(mut x: Tensor<Once, 4>, leaves: &Leaves, config: &Conv4Config) -> Tensor<Once, 2> {
        let pool = config.downsampling == Downsampling::MaxPool;
        let stride = if pool { 1 } else { 2 };
        for block in 0..config.blocks {
            let name = |leaf: &str| format!("blocks.{block}.{leaf}");
            let weight = leaves.get(name("conv.weight"));
            let weight = weight.reshape([config.channels, x.dims()[1], 3, 3]);
            let options = ConvOptions::new([stride; 2], [1; 2], [1; 2], 1);
            x = normalised(conv2d(x, weight, Some(leaves.get(name("conv.bias"))), options));
            x = leaves.channels(&name("norm.gamma")) * x + leaves.channels(&name("norm.beta"));
            if block == 2 || config.blocks < 3 && block + 1 == config.blocks {
                x = modulated(x, leaves);
            }
            x = relu(x);
            if pool {
                x = max_pool2d(x, [2; 2], [2; 2], [0; 2], [1; 2], false);
            }
        }
        x.flatten(1, 3)
    }

    fn assert_is_plain(config: Conv4Config, seed: u64) {
        let module: Conv4<Once> = conv4(&config);
        let values = any_state(module.clone(), seed);
        let (module, leaves) = (with_state(module, &values), Leaves::new(&values));
        let [c, h, w] = config.image;
        let images = || uniform(seed, [5, c, h, w]);

        let features = module.encode(images(), BnStatistics::Batch);
        let expected = encode(images(), &leaves, &config);
        assert_close("features", &read(features.clone()), &read(expected.clone()), 1e-4);
        let found = gradients(&module, &loss(features).backward());
        let expected = loss(expected).backward();
        assert_eq!(found.len(), 4 * config.blocks + 3);
        for (name, found) in found {
            // Rounding errors of zero: the mean takes it away.
            if !name.ends_with("conv.bias") {
                let expected = read(leaves.get(&name).grad(&expected).unwrap());
                assert_not_flat(&name, &expected);
                assert_close(&name, &read(found), &expected, 1e-3);
            }
        }
    }

    #[test]
    fn the_third_block_is_modulated() {
        let config = Conv4Config::new([2, 17, 16]).with_channels(4).with_context(3);
        assert_is_plain(config.clone(), 100);
        assert_is_plain(config.with_downsampling(Downsampling::Stride), 200);
    }

    #[test]
    fn the_last_of_fewer_blocks_is_modulated() {
        for blocks in [1, 2, 3] {
            let config = conv4_config().with_blocks(blocks).with_context(5);
            assert_is_plain(config, 300);
        }
    }

    #[test]
    fn the_context_is_behind_an_mlps_input() {
        let module: Mlp<Once> = mlp(2);
        let values = any_state(module.clone(), 400);
        let (module, leaves) = (with_state(module, &values), Leaves::new(&values));
        let x = || uniform::<Once, 2>(401, [6, 4]);
        let weight = leaves.get("layers.0.weight").reshape([6, 5]);
        let context = leaves.get("context").reshape([1, 2]).matmul(weight.clone().slice(4..6));
        let hidden = x().matmul(weight.slice(0..4)) + context;
        let hidden = relu(hidden + leaves.get("layers.0.bias").unsqueeze());
        let expected = hidden.matmul(leaves.get("layers.1.weight").reshape([5, 3]));
        let expected = expected + leaves.get("layers.1.bias").unsqueeze();

        let features = module.forward(x());
        assert_close("features", &read(features.clone()), &read(expected.clone()), 1e-5);
        let found = gradients(&module, &loss(features).backward());
        let expected = loss(expected).backward();
        assert_eq!(found.len(), 5);
        for (name, found) in found {
            let expected = leaves.get(&name).grad(&expected).unwrap();
            assert_close(&name, &read(found), &read(expected), 1e-4);
        }
    }
}

mod in_lanes {
    use super::*;

    const TASKS: usize = 3;

    /// The values of task after task.
    fn side_by_side(states: &[State]) -> State {
        let all = |name: &String| states.iter().flat_map(|state| state[name].clone()).collect();
        states[0].keys().map(|name| (name.clone(), all(name))).collect()
    }

    fn assert_is_the_loop<E: Encoder<Once>>(module: E, images: Tensor<Once, 5>, tolerance: f32) {
        let seeds = (0..TASKS as u64).map(|task| 1000 * (task + 1));
        let states: Vec<_> = seeds.map(|seed| any_state::<Once>(module.clone(), seed)).collect();
        let lanes = with_state::<Once, _>(module.clone(), &side_by_side(&states));
        let features = lanes.encode_lanes(images.clone(), BnStatistics::Batch);
        let found = gradients(&lanes, &loss(features.clone()).backward());
        let found = found.into_iter().map(|(name, gradient)| (name, read(gradient)));

        let mut expected = Vec::new();
        let mut parts = Vec::new();
        for (task, state) in states.iter().enumerate() {
            let module = with_state::<Once, _>(module.clone(), state);
            let images = images.clone().slice(task..task + 1).flatten(0, 1);
            let features = module.encode(images, BnStatistics::Batch);
            expected.extend(read(features.clone()));
            let gradients = gradients(&module, &loss(features).backward());
            parts.push(gradients.into_iter().map(|(name, g)| (name, read(g))).collect::<State>());
        }
        assert_close("features", &read(features), &expected, tolerance);
        let expected = side_by_side(&parts);
        assert!(expected.keys().any(|name| name.ends_with("context")));
        for (name, found) in found {
            if !name.ends_with("conv.bias") {
                assert_not_flat(&name, &expected[&name]);
                assert_close(&name, &found, &expected[&name], 10.0 * tolerance);
            }
        }
    }

    #[test]
    fn every_task_of_a_conv4_has_its_context() {
        for blocks in [2, 3] {
            let config = conv4_config().with_blocks(blocks).with_context(4);
            let images = uniform(31, [TASKS, 5, 2, 8, 9]);
            assert_is_the_loop(conv4::<Once>(&config), images, 1e-4);
        }
    }

    #[test]
    fn every_task_of_an_mlp_has_its_context() {
        assert_is_the_loop(mlp::<Once>(2), uniform(32, [TASKS, 6, 4, 1, 1]), 1e-5);
    }
}

mod second_derivatives {
    use super::*;

    /// The squared length of the gradient of the loss by the context.
    fn steepness<B: AutodiffBackend, E: Encoder<B>>(
        module: &E,
        images: Tensor<B, 4>,
    ) -> Tensor<B::InnerBackend, 1> {
        let features = module.encode(images, BnStatistics::Batch);
        let found = gradients(module, &loss(features).backward());
        let mut contexts = found.into_iter().filter(|(name, _)| name.ends_with("context"));
        let (_, gradient) = contexts.next().expect("a network with a context");
        (gradient.clone() * gradient).sum()
    }

    /// Of the steepness by every tensor of these names: all that the outer gradient of an inner
    /// step needs, by the context and by what makes use of it.
    fn assert_are_those_of_differences<E: Encoder<Once>, L: Encoder<Twice>>(
        (module, lifted): (E, impl Fn(E) -> L),
        images: [usize; 4],
        names: &[&str],
    ) {
        let values = any_state::<Once>(module.clone(), 50);
        let images = || uniform::<Flex, 4>(51, images);
        let once = with_state::<Once, _>(module.clone(), &values);
        let inner = Tensor::<Once, 4>::from_inner(images());
        let found = steepness(&lifted(once.clone()), Tensor::from_inner(inner.clone())).backward();
        let found = gradients::<Once>(&once, &found);
        for &name in names {
            let expected = differences_by(1e-2, &values[name], |moved| {
                let mut values = values.clone();
                values.insert(name.to_owned(), moved);
                let module = with_state::<Once, _>(module.clone(), &values);
                steepness::<Once, _>(&module, inner.clone()).into_scalar()
            });
            assert_not_flat(name, &expected);
            assert_close(name, &read(found[name].clone()), &expected, 2e-3);
        }
    }

    #[test]
    fn of_a_conv4_are_those_of_central_differences() {
        for blocks in [1, 2, 4] {
            let config = Conv4Config::new([1, 20, 20]).with_channels(3).with_blocks(blocks);
            let config = config.with_downsampling(Downsampling::Stride).with_context(3);
            let names = ["film.context", "film.map.weight", "film.map.bias"];
            let lifted = <Conv4<Twice> as AutodiffModule<Twice>>::from_inner;
            assert_are_those_of_differences((conv4(&config), lifted), [6, 1, 20, 20], &names);
        }
    }

    #[test]
    fn of_an_mlp_are_those_of_central_differences() {
        let names = ["context", "layers.0.weight", "layers.1.weight", "layers.1.bias"];
        let lifted = <Mlp<Twice> as AutodiffModule<Twice>>::from_inner;
        assert_are_those_of_differences((mlp(2), lifted), [6, 4, 1, 1], &names);
    }
}

mod names {
    use super::*;

    #[test]
    fn the_architecture_tells_the_context() {
        let config = Conv4Config::omniglot_strided().with_context(100);
        let encoder: Conv4<Flex> = config.init(&Default::default());
        let text = "conv4(1x28x28, 64 channels, stride 2, averaged, context of 100)";
        assert_eq!(encoder.architecture(), text);
        assert_eq!(mlp::<Flex>(2).architecture(), "mlp(4-5-3, context of 2)");
        assert_eq!(mlp::<Flex>(0).architecture(), "mlp(4-5-3)");
    }

    fn names<B: Backend>(module: &impl ModuleSnapshot<B>) -> Vec<String> {
        state(module).into_keys().collect()
    }

    #[test]
    fn a_context_ends_its_name_and_none_adds_no_name() {
        let conv4 = |context| {
            let config = conv4_config().with_blocks(1).with_context(context);
            names(&conv4::<Flex>(&config))
        };
        let block = ["conv.bias", "conv.weight", "norm.beta", "norm.gamma"];
        let running = ["norm.running_mean", "norm.running_var"];
        let mut wanted: Vec<_> =
            block.iter().chain(&running).map(|name| format!("blocks.0.{name}")).collect();
        assert_eq!(conv4(0), wanted);
        wanted.extend(["film.context", "film.map.bias", "film.map.weight"].map(str::to_owned));
        assert_eq!(conv4(7), wanted);

        let layers = ["bias", "weight"];
        let layers = (0..2).flat_map(|at| layers.map(|name| format!("layers.{at}.{name}")));
        let layers: Vec<_> = layers.collect();
        assert_eq!(names(&mlp::<Flex>(0)), layers);
        assert_eq!(names(&mlp::<Flex>(7)), [vec!["context".to_owned()], layers].concat());
    }

    /// A [`Conv4`] as it was before there were contexts.
    #[derive(Module, Debug)]
    struct OldConv4<B: Backend> {
        blocks: Vec<OldBlock<B>>,
        image: [usize; 3],
        stride: usize,
        pool: bool,
        average: bool,
    }

    #[derive(Module, Debug)]
    struct OldBlock<B: Backend> {
        conv: Conv2d<B>,
        norm: BatchNorm<B>,
    }

    /// An [`Mlp`] as it was before there were contexts.
    #[derive(Module, Debug)]
    struct OldMlp<B: Backend> {
        layers: Vec<Linear<B>>,
    }

    #[test]
    fn a_record_from_before_there_were_contexts_loads() {
        let device = Default::default();
        let conv = burn::nn::conv::Conv2dConfig::new([2, 3], [3, 3]).init::<Flex>(&device);
        let block = OldBlock { conv, norm: BatchNormConfig::new(3).init(&device) };
        let old = OldConv4 {
            blocks: vec![block],
            image: [2, 8, 9],
            stride: 1,
            pool: true,
            average: false,
        };
        let old = with_state(old.clone(), &any_state(old, 60));
        let new = conv4::<Flex>(&conv4_config().with_blocks(1));
        assert_ne!(state(&new), state(&old));
        assert_eq!(state(&new.load_record(carried(old.clone().into_record()))), state(&old));

        let layer = |from, to| LinearConfig::new(from, to).init::<Flex>(&device);
        let old = OldMlp { layers: vec![layer(4, 5), layer(5, 3)] };
        let new = mlp::<Flex>(0);
        assert_ne!(state(&new), state(&old));
        assert_eq!(state(&new.load_record(carried(old.clone().into_record()))), state(&old));
    }

    #[test]
    fn a_context_survives_a_record() {
        let module: Conv4<Flex> = conv4(&conv4_config().with_context(4));
        let values = any_state(module.clone(), 70);
        let other = module.clone().load_record(carried(with_state(module, &values).into_record()));
        assert_eq!(state(&other), values);
    }
}
