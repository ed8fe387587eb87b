mod outer_step;

use burn::backend::{Autodiff, Flex};
use burn::grad_clipping::GradientClippingConfig;
use burn::module::{Module, Param};
use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{
    AdamConfig, AdamWConfig, GradientsParams, MultiGradientsParams, Optimizer, SgdConfig,
};
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Recorder};
use burn::tensor::backend::DeviceOps;
use burn::tensor::{Tensor, TensorData};

use super::{Adam, AdamW, Lamb, Sgd};

type B = Autodiff<Flex>;

/// Parameters of every rank that networks have, one of them frozen.
#[derive(Module, Debug)]
struct Net<B: burn::tensor::backend::Backend> {
    matrix: Param<Tensor<B, 2>>,
    frozen: Param<Tensor<B, 1>>,
    vector: Param<Tensor<B, 1>>,
    filter: Param<Tensor<B, 4>>,
}

fn values(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + seed * 101) % 64) as f32 / 32.0 - 1.0).collect()
}

fn tensor<const D: usize>(shape: [usize; D], seed: usize) -> Tensor<B, D> {
    let data = TensorData::new(values(shape.iter().product(), seed), shape);
    Tensor::from_data(data, &Default::default())
}

fn net() -> Net<B> {
    Net {
        matrix: Param::from_tensor(tensor([3, 5], 1)),
        frozen: Param::from_tensor(tensor([4], 2)).set_require_grad(false),
        vector: Param::from_tensor(tensor([7], 3)),
        filter: Param::from_tensor(tensor([2, 3, 3, 3], 4)),
    }
}

/// Gradients that differ from step to step; the vector has none at the second.
fn gradients(net: &Net<B>, step: usize) -> GradientsParams {
    let mut all = GradientsParams::new();
    all.register::<Flex, 2>(net.matrix.id, tensor([3, 5], 10 + step).inner());
    if step != 1 {
        all.register::<Flex, 1>(net.vector.id, tensor([7], 20 + step).inner() * 1e-2);
    }
    all.register::<Flex, 4>(net.filter.id, tensor([2, 3, 3, 3], 30 + step).inner() * 1e-4);
    all
}

fn read(net: &Net<B>) -> Vec<Vec<f32>> {
    let flat = |data: TensorData| data.into_vec().unwrap();
    vec![
        flat(net.matrix.val().into_data()),
        flat(net.frozen.val().into_data()),
        flat(net.vector.val().into_data()),
        flat(net.filter.val().into_data()),
    ]
}

fn walk<O: Optimizer<Net<B>, B>>(
    optimizer: &mut O,
    mut net: Net<B>,
    steps: std::ops::Range<usize>,
) -> Net<B> {
    for step in steps {
        let gradients = gradients(&net, step);
        net = optimizer.step(0.05, net, gradients);
    }
    net
}

fn assert_close(actual: &Net<B>, expected: &Net<B>) {
    for (actual, expected) in read(actual).iter().flatten().zip(read(expected).iter().flatten()) {
        assert!(
            (actual - expected).abs() <= 2e-5 * (1.0 + expected.abs()),
            "{actual}, not {expected}"
        );
    }
}

/// Asserts that Burn's optimizer and ours go the same way, and can take over from one another.
fn same_way<O, F, R>(burns: O, ours: F)
where
    O: Optimizer<Net<B>, B, Record = R>,
    F: Optimizer<Net<B>, B, Record = R>,
    R: burn::record::Record<B>,
{
    let start = net();
    let expected = walk(&mut burns.clone(), start.clone(), 0..6);
    assert_close(&walk(&mut ours.clone(), start.clone(), 0..6), &expected);
    let (mut first, mut second) = (burns.clone(), ours.clone());
    let half = walk(&mut first, start.clone(), 0..3);
    let mut second_half = second.clone().load_record(through_a_file(first.to_record()));
    assert_close(&walk(&mut second_half, half, 3..6), &expected);
    let half = walk(&mut second, start, 0..3);
    let mut second_half = burns.load_record(through_a_file(second.to_record()));
    assert_close(&walk(&mut second_half, half, 3..6), &expected);
}

fn through_a_file<R: burn::record::Record<B>>(record: R) -> R {
    let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::default();
    let bytes = Recorder::<B>::record(&recorder, record, ()).unwrap();
    Recorder::<B>::load(&recorder, bytes, &Default::default()).unwrap()
}

#[test]
fn sgd_is_that_of_burn() {
    same_way(SgdConfig::new().init::<B, _>(), Sgd::new().init());
    let (decay, momentum) = (WeightDecayConfig::new(0.1), MomentumConfig::new());
    let burns = SgdConfig::new().with_weight_decay(Some(decay));
    let ours = Sgd::new().with_weight_decay(0.1);
    same_way(burns.clone().init::<B, _>(), ours.clone().init());
    let burns = burns.with_momentum(Some(momentum.clone()));
    let ours = ours.with_momentum(0.9).with_dampening(0.1);
    same_way(burns.clone().init::<B, _>(), ours.clone().init());
    let burns = burns.with_momentum(Some(momentum.with_nesterov(true)));
    same_way(burns.init::<B, _>(), ours.with_nesterov(true).init());
}

#[test]
fn adam_is_that_of_burn() {
    same_way(AdamConfig::new().with_epsilon(1e-8).init::<B, _>(), Adam::new().init());
    let burns = AdamConfig::new().with_weight_decay(Some(WeightDecayConfig::new(0.1)));
    same_way(burns.init::<B, _>(), Adam::new().with_epsilon(1e-5).with_weight_decay(0.1).init());
}

#[test]
fn adam_w_is_that_of_burn() {
    let burns = AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01);
    same_way(burns.init::<B, _>(), AdamW::new().init());
}

#[test]
fn clipping_is_that_of_burn() {
    for clipping in [GradientClippingConfig::Value(0.3), GradientClippingConfig::Norm(0.5)] {
        let burns = SgdConfig::new().with_gradient_clipping(Some(clipping.clone()));
        same_way(burns.init::<B, _>(), Sgd::new().with_grad_clipping(Some(clipping)).init());
    }
}

/// Saved and loaded after three steps, and walked on: bit for bit as without.
fn resumes<O: Optimizer<Net<B>, B>>(optimizer: O) {
    let mut whole = optimizer.clone();
    let expected = walk(&mut whole, net(), 0..6);
    let mut first = optimizer.clone();
    let half = walk(&mut first, net(), 0..3);
    let half_record = through_a_file(half.clone().into_record());
    let again = net().load_record(half_record);
    // Loading twice: nothing gets lost of parameters that have not moved in between.
    let loaded = optimizer.clone().load_record(through_a_file(first.to_record()));
    let mut loaded = optimizer.load_record(through_a_file(loaded.to_record()));
    assert!(read(&walk(&mut loaded, again, 3..6)) == read(&expected));
}

#[test]
fn an_optimizer_that_was_saved_goes_on_bit_for_bit() {
    resumes(Sgd::new().with_momentum(0.9).init());
    resumes(Adam::new().init());
    resumes(AdamW::new().init());
    resumes(Lamb::new().init());
}

#[test]
fn a_parameter_without_a_gradient_stays_as_it_is() {
    let start = net();
    let after = walk(&mut AdamW::new().with_weight_decay(0.5).init(), start.clone(), 1..2);
    let (before, actual) = (read(&start), read(&after));
    assert_eq!(before[1..3], actual[1..3]);
    assert!(before[0] != actual[0] && before[3] != actual[3]);
    assert!(!after.frozen.val().is_require_grad());
    assert!(after.matrix.val().is_require_grad() && after.vector.val().is_require_grad());
}

#[test]
fn lamb_makes_steps_in_proportion_to_the_parameter() {
    let (start, rate) = (net(), 0.05);
    let norm = |values: &[f32]| values.iter().map(|v| v * v).sum::<f32>().sqrt();
    let after = walk(&mut Lamb::new().init(), start.clone(), 0..1);
    for i in [0, 2, 3] {
        let (before, after) = (&read(&start)[i], &read(&after)[i]);
        let step: Vec<f32> = before.iter().zip(after).map(|(a, b)| a - b).collect();
        assert!((norm(&step) / norm(before) - rate).abs() < 1e-5);
    }
}

fn place(net: &Net<B>) -> Vec<*const u8> {
    let filter = net.filter.val().inner().into_primitive().tensor();
    let matrix = net.matrix.val().inner().into_primitive().tensor();
    vec![filter.bytes().as_ptr(), matrix.bytes().as_ptr()]
}

#[test]
fn the_only_copy_is_updated_in_place_and_any_other_is_not_touched() {
    let mut optimizer = Adam::new().init();
    let once = walk(&mut optimizer, net(), 0..1);
    let places = place(&once);
    let twice = walk(&mut optimizer, once, 1..2);
    assert_eq!(place(&twice), places);
    let (kept, record) = (twice.clone(), optimizer.clone());
    let before = read(&kept);
    let thrice = walk(&mut optimizer, twice, 2..3);
    assert_ne!(place(&thrice), places);
    assert_eq!(read(&kept), before);
    // The clone of the optimizer, too, has kept its moments.
    assert!(read(&walk(&mut { record }, kept, 2..3)) == read(&thrice));
}

#[test]
fn a_step_after_a_backward_pass_is_in_place() {
    let mut optimizer = Adam::new().init();
    let mut net = net();
    let mut places = Vec::new();
    for _ in 0..3 {
        let [matrix, filter] =
            [net.matrix.val().powi_scalar(2).sum(), net.filter.val().powi_scalar(2).sum()];
        let gradients = GradientsParams::from_grads((matrix + filter).backward(), &net);
        net = optimizer.step(0.1, net, gradients);
        places.push(place(&net));
    }
    assert_eq!(places[1], places[2]);
}

#[test]
fn a_velocity_that_is_not_wanted_any_more_is_dropped() {
    let mut with_momentum = SgdConfig::new().with_momentum(Some(MomentumConfig::new())).init();
    let half = walk(&mut with_momentum, net(), 0..2);
    let mut plain = Sgd::new().init().load_record(with_momentum.to_record());
    let expected = walk(&mut SgdConfig::new().init::<B, _>(), half.clone(), 2..4);
    assert_close(&walk(&mut plain, half, 2..4), &expected);
}

#[test]
fn gradients_of_several_devices_are_added() {
    let start = net();
    let device = start.matrix.val().device();
    let both = MultiGradientsParams {
        grads: vec![(gradients(&start, 0), device.id()), (gradients(&start, 2), device.id())],
    };
    let after = Sgd::new().init().step_multi(0.1, start.clone(), both);
    let mut one_by_one = Sgd::new().init();
    let expected = one_by_one.step(0.1, start.clone(), gradients(&start, 0));
    let expected = one_by_one.step(0.1, expected, gradients(&start, 2));
    assert_close(&after, &expected);
}
