//! Any optimizer, groups of parameters, and schedules, against PyTorch: `tests/golden/outer_step.py`.

use std::collections::BTreeMap;

use burn::lr_scheduler::LrScheduler;
use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::lr_scheduler::step::StepLrSchedulerConfig;
use serde::Deserialize;

use super::*;
use crate::optim::{
    AnyOptimizer, GroupDecay, GroupError, ParameterGroups, RateCurve, Schedule, Update,
};

#[derive(Deserialize)]
struct Golden {
    schedules: BTreeMap<String, Vec<f64>>,
    groups: BTreeMap<String, Vec<Vec<f32>>>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../../../tests/golden/outer_step.json")).unwrap()
}

const RATE: f64 = 0.3;

#[test]
fn schedules_are_those_of_pytorch() {
    let multi_step = RateCurve::MultiStep { milestones: vec![4, 5, 11], gamma: 0.2 };
    let cosine = RateCurve::Cosine { steps: 20 };
    let of = |curve: &RateCurve| Schedule::new(RATE, curve.clone());
    let ours = BTreeMap::from([
        ("constant", of(&RateCurve::Constant)),
        ("step", of(&RateCurve::Step { every: 6, gamma: 0.5 })),
        ("multi_step", of(&multi_step)),
        ("multi_step_after_rise", of(&multi_step).with_warm_up(5)),
        ("cosine", of(&cosine)),
        ("cosine_after_rise", of(&cosine).with_warm_up(5)),
        ("one_cycle", of(&RateCurve::OneCycle { steps: 20 })),
        ("linear", of(&RateCurve::Linear { steps: 20 })),
    ]);
    let golden = golden().schedules;
    assert!(golden.keys().eq(ours.keys()));
    for (name, expected) in golden {
        let mut schedule = ours[&*name].clone();
        for (step, expected) in expected.into_iter().enumerate() {
            let rate = schedule.step();
            assert!((rate - expected).abs() < 1e-12, "{name}, step {step}: {rate}, not {expected}");
        }
    }
}

#[test]
fn a_rate_stays_at_its_end() {
    for curve in [RateCurve::Cosine { steps: 9 }, RateCurve::Linear { steps: 9 }] {
        let schedule = Schedule::new(RATE, curve);
        assert!([9, 10, 1000].iter().all(|step| schedule.rate_at(*step).abs() < 1e-16));
    }
    let cycle = Schedule::new(RATE, RateCurve::OneCycle { steps: 9 });
    assert_eq!(cycle.rate_at(8), cycle.rate_at(100));
}

/// The same rates and records from step to step, to the last bit.
fn same_scheduler<R: PartialEq + std::fmt::Debug + TryInto<i64>>(
    mut burns: impl LrScheduler<Record<B> = R>,
    mut ours: Schedule,
) {
    for step in 0..30 {
        let record = burns.to_record::<B>().try_into().ok().unwrap();
        assert_eq!(ours.to_record::<B>(), record, "step {step}");
        ours = ours.load_record::<B>(record);
        assert_eq!(burns.step(), ours.step(), "step {step}");
    }
}

#[test]
fn the_schedulers_of_burn_can_be_taken_over() {
    let burns = StepLrSchedulerConfig::new(0.007, 4).with_gamma(0.5).init().unwrap();
    same_scheduler(burns, Schedule::new(0.007, RateCurve::Step { every: 4, gamma: 0.5 }));
    let burns = StepLrSchedulerConfig::new(0.007, usize::MAX).init().unwrap();
    same_scheduler(burns, Schedule::new(0.007, RateCurve::Constant));
    let burns = LinearLrSchedulerConfig::new(0.7, 0.0, 25).init().unwrap();
    same_scheduler(burns, Schedule::new(0.7, RateCurve::Linear { steps: 25 }));
}

#[test]
fn any_optimizer_is_the_one_that_it_holds() {
    fn same<F: Optimizer<Net<B>, B>>(alone: F, any: AnyOptimizer) {
        let any = any.init::<B, Net<B>>();
        let (mut one, mut other) = (alone, any.clone());
        let half = walk(&mut one, net(), 0..3);
        assert!(read(&walk(&mut other, net(), 0..3)) == read(&half));
        // What the one has written, the other reads.
        let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::default();
        let bytes = Recorder::<B>::record(&recorder, one.to_record(), ()).unwrap();
        let record = Recorder::<B>::load(&recorder, bytes, &Default::default()).unwrap();
        let mut other = any.load_record(record);
        let expected = walk(&mut one, half.clone(), 3..6);
        assert!(read(&walk(&mut other, half, 3..6)) == read(&expected));
    }
    same(Sgd::new().init(), AnyOptimizer::Sgd(Sgd::new()));
    let sgd = Sgd::new().with_momentum(0.9).with_weight_decay(0.1);
    same(sgd.init(), AnyOptimizer::Sgd(sgd));
    same(Adam::new().init(), AnyOptimizer::Adam(Adam::new()));
    same(AdamW::new().init(), AnyOptimizer::AdamW(AdamW::new()));
    same(Lamb::new().init(), AnyOptimizer::Lamb(Lamb::new()));
}

#[test]
fn any_optimizer_that_was_saved_goes_on_bit_for_bit() {
    resumes(AnyOptimizer::Sgd(Sgd::new().with_momentum(0.9)).init());
    resumes(AnyOptimizer::Lamb(Lamb::new()).init());
}

#[test]
fn a_tensor_by_itself_steps_like_those_of_a_module() {
    use burn::optim::SimpleOptimizer;

    let device = Default::default();
    let optimizer = AnyOptimizer::AdamW(AdamW::new());
    let mut module = optimizer.init::<B, Net<B>>();
    let (mut net, mut state) = (net(), None);
    let mut tensor = net.matrix.val().inner();
    for step in 0..3 {
        let gradients = gradients(&net, step);
        let gradient = gradients.get::<Flex, 2>(net.matrix.id).unwrap();
        net = module.step(0.05, net, gradients);
        let moved =
            state.map(|state| <AnyOptimizer as SimpleOptimizer<Flex>>::to_device(state, &device));
        (tensor, state) = SimpleOptimizer::step(&optimizer, 0.05, tensor, gradient, moved);
        assert_eq!(tensor.to_data(), net.matrix.val().into_data());
    }
}

#[derive(Module, Debug)]
struct Layer<B: burn::tensor::backend::Backend> {
    matrix: Param<Tensor<B, 2>>,
    vector: Param<Tensor<B, 1>>,
}

/// Parts of enums have no names.
#[derive(Module, Debug)]
enum Encoder<B: burn::tensor::backend::Backend> {
    Deep(Layers<B>),
}

#[derive(Module, Debug)]
struct Layers<B: burn::tensor::backend::Backend> {
    blocks: Vec<Layer<B>>,
    last: Layer<B>,
}

#[derive(Module, Debug)]
struct Grouped<B: burn::tensor::backend::Backend> {
    encoder: Encoder<B>,
    head: Layer<B>,
}

fn layer(index: usize) -> Layer<B> {
    Layer {
        matrix: Param::from_tensor(tensor([3, 4], 2 * index)),
        vector: Param::from_tensor(tensor([3], 2 * index + 1)),
    }
}

fn grouped() -> Grouped<B> {
    let layers = Layers { blocks: vec![layer(0), layer(1)], last: layer(2) };
    Grouped { encoder: Encoder::Deep(layers), head: layer(3) }
}

fn layers(net: &Grouped<B>) -> [&Layer<B>; 4] {
    let Encoder::Deep(layers) = &net.encoder;
    [&layers.blocks[0], &layers.blocks[1], &layers.last, &net.head]
}

#[test]
fn groups_step_as_in_pytorch() {
    let rules = [
        ("sgd", {
            let sgd = Sgd::new().with_momentum(0.9).with_nesterov(true);
            AnyOptimizer::Sgd(sgd.with_weight_decay(0.1))
        }),
        ("adam", AnyOptimizer::Adam(Adam::new().with_weight_decay(0.1))),
        ("adamw", AnyOptimizer::AdamW(AdamW::new().with_weight_decay(0.2))),
    ];
    let golden = golden().groups;
    for (name, rule) in rules {
        let mut net = grouped();
        let groups = ParameterGroups::of(&net).freeze(&["blocks.1"]).unwrap();
        let groups = groups.without_decay_of_vectors().encoder_rate(0.3).layer_decay(0.5);
        let mut optimizer = rule.init().with_groups(groups);
        for step in 0..3 {
            let mut gradients = GradientsParams::new();
            for (index, layer) in layers(&net).into_iter().enumerate() {
                let seed = 50 + 10 * step + 2 * index;
                gradients.register::<Flex, 2>(layer.matrix.id, tensor([3, 4], seed).inner());
                gradients.register::<Flex, 1>(layer.vector.id, tensor([3], seed + 1).inner());
            }
            net = optimizer.step(RATE, net, gradients);
        }
        let flat = |data: TensorData| data.into_vec::<f32>().unwrap();
        let actual = layers(&net).into_iter().flat_map(|layer| {
            [flat(layer.matrix.val().into_data()), flat(layer.vector.val().into_data())]
        });
        for (index, (actual, expected)) in actual.zip(&golden[name]).enumerate() {
            for (actual, expected) in actual.iter().zip(expected) {
                let error = (actual - expected).abs() / (1.0 + expected.abs());
                assert!(error < 1e-5, "{name}, tensor {index}: {actual}, not {expected}");
            }
        }
    }
}

#[test]
fn groups_are_told_by_the_beginnings_of_names() {
    let groups = || ParameterGroups::of(&grouped());
    assert_eq!(groups().layers(), ["blocks.0", "blocks.1", "last"]);
    assert!(groups().is_uniform() && !groups().freezes());
    for path in ["blocks.0", "encoder.blocks.0"] {
        let frozen = groups().freeze(&[path]).unwrap();
        assert!(frozen.freezes() && !frozen.is_uniform());
        for (name, update) in [
            ("encoder.blocks.0.matrix", Update::Frozen),
            ("encoder.blocks.0.vector", Update::Frozen),
            ("encoder.blocks.1.matrix", Update::Trained),
            ("head.matrix", Update::Trained),
        ] {
            assert_eq!(frozen.group(name).update, update, "{name}");
        }
    }
    for path in ["block", "blocks.0.matr", "layer1", ""] {
        let error = groups().freeze(&[path]).unwrap_err();
        assert!(matches!(error, GroupError::Unknown { .. }), "{path}: {error}");
        assert!(error.to_string().contains("blocks.0, blocks.1, last, head"), "{error}");
    }
    let error = groups().freeze(&["encoder", "head"]).unwrap_err();
    assert!(matches!(error, GroupError::AllFrozen));
    let exempt = groups().without_decay_of_vectors();
    assert_eq!(exempt.group("head.vector").decay, GroupDecay::Exempt);
    assert_eq!(exempt.group("head.matrix").decay, GroupDecay::Full);
}
