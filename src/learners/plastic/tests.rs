use burn::backend::{Autodiff, Flex};
use burn::module::Param;
use burn::optim::Optimizer;
use burn::tensor::{Int, TensorData};
use fewshot_models::{Mlp, MlpConfig};

use super::*;
use crate::data::{Glyphs, GlyphsConfig};
use crate::episode::{EpisodeSampler, Protocol};
use crate::learners::accuracies;
use crate::optim::Adam;
use crate::precision::LossScale;

type A = Autodiff<Flex>;

fn learner<B: Backend>(rule: TraceRule) -> Plastic<B, Mlp<B>> {
    let device = Default::default();
    B::seed(&device, 1);
    let encoder = MlpConfig::new(784).with_layers(vec![64]).init(&device);
    Plastic::new(encoder, 64, 5, rule, &device)
}

fn glyphs(train: bool, protocol: Protocol) -> EpisodeSampler {
    let glyphs = Glyphs::generate(&GlyphsConfig::default());
    let classes = if train { glyphs.train } else { glyphs.test };
    classes.sampler(protocol, 1).unwrap()
}

fn batch<B: Backend>(protocol: Protocol) -> EpisodeBatch<B> {
    glyphs(true, protocol).batch(0..2, &Default::default())
}

fn read<const D: usize>(tensor: Tensor<Flex, D>) -> Vec<f32> {
    tensor.into_data().to_vec().unwrap()
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < tolerance, "{found} is not {expected}");
    }
}

/// One shot binds `eta` times the features of a class to its output.
#[test]
fn a_shown_class_is_bound_to_its_output() {
    let learner = learner::<Flex>(TraceRule::Oja);
    let batch = batch::<Flex>(Protocol::new(5, 1));
    let features =
        embed_tasks(&learner.encoder, batch.support.images.clone(), BnStatistics::Running);
    let bound = features.swap_dims(1, 2) * ETA;
    let expected = learner.connections.effective(bound);
    let found = learner.adapt(&batch.support).connections;
    assert_close(&read(found), &read(expected), 1e-6);
}

fn reversed(support: &Support<Flex>) -> Support<Flex> {
    Support {
        images: support.images.clone().flip([1]),
        labels: support.labels.clone().flip([1]),
        ways: support.ways,
    }
}

/// How much connections change when a support of so many shots is shown in reverse.
fn turned(rule: TraceRule, shots: usize) -> f32 {
    let (learner, batch) = (learner::<Flex>(rule), batch::<Flex>(Protocol::new(5, shots)));
    let [first, second] = [batch.support.clone(), reversed(&batch.support)]
        .map(|support| read(learner.adapt(&support).connections));
    first.iter().zip(&second).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn the_order_of_classes_changes_nothing_by_ojas_rule() {
    assert!(turned(TraceRule::Oja, 1) < 1e-7);
    assert!(turned(TraceRule::Hebb, 1) > 1e-5);
}

#[test]
fn the_order_of_shots_matters_by_either_rule() {
    assert!(turned(TraceRule::Oja, 2) > 1e-5);
    assert!(turned(TraceRule::Hebb, 2) > 1e-5);
}

/// A learner whose connections are plastic enough to tell, with one number of `(weight, alpha)`
/// moved and a rate.
fn moved(rule: TraceRule, eta: f32, [weight, alpha]: [Option<(usize, f32)>; 2]) -> Learned {
    let mut learner = learner::<A>(rule);
    let device = Default::default();
    let with = |values: Tensor<A, 2>, change: Option<(usize, f32)>| {
        let shape = values.dims();
        let mut values = read(values.inner());
        if let Some((index, step)) = change {
            values[index] += step;
        }
        Param::from_tensor(Tensor::from_data(TensorData::new(values, shape), &device))
    };
    let connections = &mut learner.connections;
    connections.weight = with(connections.weight.val(), weight);
    connections.alpha = with(connections.alpha.val() * 20.0, alpha);
    connections.eta = Param::from_tensor(Tensor::from_floats([eta], &device));
    learner
}

type Learned = Plastic<A, Mlp<A>>;

#[test]
fn gradients_of_the_connections_agree_with_differences() {
    for rule in [TraceRule::Oja, TraceRule::Hebb] {
        let tasks = batch::<A>(Protocol::new(5, 3));
        let loss = |learner: Learned| read(learner.meta_gradients(&tasks, LossScale::ONE).loss)[0];
        let learner = moved(rule, 0.2, [None, None]);
        let gradients = learner.meta_gradients(&tasks, LossScale::ONE).gradients;
        let (gradients, _) = gradients.into_parts();
        let close = |what: &str, found: f32, difference: f32| {
            let error = (found - difference).abs();
            assert!(error < 0.02 * difference.abs() + 2e-4, "{what}: {found}, {difference}");
        };
        let connections = &learner.connections;
        let eta = read(gradients.get::<Flex, 1>(connections.eta.id).unwrap())[0];
        let at = |eta| loss(moved(rule, eta, [None, None]));
        close("eta", eta, (at(0.21) - at(0.19)) / 0.02);
        for (place, id) in [connections.weight.id, connections.alpha.id].into_iter().enumerate() {
            let found = read(gradients.get::<Flex, 2>(id).unwrap());
            let largest =
                (0..found.len()).max_by(|a, b| found[*a].abs().total_cmp(&found[*b].abs()));
            for index in [largest.unwrap(), 7, 200] {
                let at = |step| {
                    let mut change = [None, None];
                    change[place] = Some((index, step));
                    loss(moved(rule, 0.2, change))
                };
                let what = format!("{rule:?}, parameter {place}, {index}");
                close(&what, found[index], (at(0.05) - at(-0.05)) / 0.1);
            }
        }
    }
}

#[test]
fn another_number_of_ways_is_refused() {
    let learner = learner::<A>(TraceRule::Oja);
    let error = learner.check(&batch(Protocol::new(3, 1))).unwrap_err();
    assert_eq!(error, AdaptError::Ways { ways: 3, outputs: 5 });
}

fn accuracy(learner: &Plastic<Flex, Mlp<Flex>>) -> f32 {
    let batch: EpisodeBatch<Flex> =
        glyphs(false, Protocol::new(5, 1)).batch(0..100, &Default::default());
    let labels: Tensor<Flex, 2, Int> = batch.query_labels.clone();
    read(accuracies(learner.outputs(&batch, BnStatistics::Running), labels).mean())[0]
}

#[test]
fn training_on_glyphs_teaches_to_bind_new_glyphs() {
    let mut learner = learner::<A>(TraceRule::Oja);
    let mut optimizer = Adam::new().init();
    let tasks = glyphs(true, Protocol::new(5, 1).with_queries(3));
    for step in 0..150 {
        let batch = tasks.batch(step * 8..(step + 1) * 8, &Default::default());
        let gradients = learner.meta_gradients(&batch, LossScale::ONE).gradients;
        learner = optimizer.step(3e-3, learner, gradients.into_parts().0);
    }
    let trained = learner.valid();
    let found = accuracy(&trained);
    let mut forgetful = trained;
    forgetful.connections.eta = Param::from_tensor(Tensor::zeros([1], &Default::default()));
    let without = accuracy(&forgetful);
    assert!(found > 0.5, "{found}");
    assert!((without - 0.2).abs() < 0.05, "without a trace {without} is not chance");
}

#[test]
fn an_architecture_names_rule_ways_and_encoder() {
    let learner = learner::<Flex>(TraceRule::Oja);
    let name = format!("plastic(Oja, 5 ways, {})", learner.encoder.architecture());
    assert_eq!(learner.architecture(), name);
}
