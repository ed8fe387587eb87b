//! Names of parameters, and records.

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
    let old =
        OldConv4 { blocks: vec![block], image: [2, 8, 9], stride: 1, pool: true, average: false };
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
