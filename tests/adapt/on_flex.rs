//! Laws that one backend shows.

use burn::backend::{Autodiff, Flex};
use burn::module::{AutodiffModule, Module};
use burn::nn::{Linear as BurnLinear, LinearConfig as BurnLinearConfig};
use burn::optim::GradientsParams;
use burn::tensor::activation::log_softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Distribution, Tensor};
use fewshot::adapt::{AdaptError, InnerLoop, InnerRule, Mask, Order, Proximal, adapt};
use fewshot::data::{Glyphs, GlyphsConfig};
use fewshot::episode::{EpisodeBatch, Protocol};
use fewshot::learners::{
    Adapted, Annealing, Divergence, Learner, Maml, MetaGradients, MetaLearner,
};
use fewshot::metric::{Metric, prototypes, scores};
use fewshot::models::nn::{Linear, LinearConfig, drawn};
use fewshot::models::{BnStatistics, Classifier, Conv4, Encoder, Mlp, MlpConfig};
use fewshot::optim::Adam;
use fewshot::precision::{GradScalerConfig, LossScale};
use fewshot::train::{MetaTrainer, TrainError};

use crate::golden::{Golden, Network, Rule};
use crate::laws::{WAYS, encoder, learner, outcome};
use crate::named::{Values, assert_close, assert_slopes, gradients, with_values};

type B = Autodiff<Flex>;

/// The outer loss of a network of curves and its gradient, task after task through [`adapt`].
fn curves(network: &Network, inner: &InnerLoop) -> (f64, Values) {
    let device = Default::default();
    let mlp: Mlp<B> = MlpConfig::new(1).with_layers(vec![8, 8, 1]).init(&device);
    let mlp = with_values::<B, _>(mlp, &network.parameters(""), DType::F32);
    let [x, y, query, target] = network.curves::<B>(DType::F32);
    let of = |tensor: &Tensor<B, 3>, task| tensor.clone().narrow(0, task, 1).squeeze_dim::<2>(0);
    let tasks = x.dims()[0];
    let losses = (0..tasks).map(|task| {
        let [x, y] = [&x, &y].map(|tensor| Tensor::<Autodiff<B>, 2>::from_inner(of(tensor, task)));
        let loss =
            |mlp: &Mlp<Autodiff<B>>| (mlp.forward(x.clone()) - y.clone()).powi_scalar(2).mean();
        let adapted = adapt(&mlp, loss, inner).expect("an inner loop that can be run");
        (adapted.forward(of(&query, task)) - of(&target, task)).powi_scalar(2).mean()
    });
    let loss = losses.reduce(|one, two| one + two).unwrap() / tasks as f64;
    let found = GradientsParams::from_grads(loss.backward(), &mlp);
    (loss.into_scalar() as f64, gradients::<B, _>(&mlp, &found))
}

#[test]
fn a_module_of_ones_own_has_the_gradients_of_pytorch() {
    let golden = Golden::read();
    let network = &golden.networks["mlp"];
    let fixed = |rule: &Rule| !matches!(rule, Rule::MetaSgd | Rule::PerStep);
    let cases = golden.cases.iter().filter(|case| case.network == "mlp" && fixed(&case.rule));
    let mut checked = 0;
    for case in cases {
        let (loss, found) = curves(network, &case.inner());
        assert!((loss - case.loss).abs() < 1e-5 * case.loss, "{}: loss {loss}", case.name);
        assert_close(&case.name, &found, &case.gradients(""), 2e-5);
        checked += 1;
    }
    assert_eq!(checked, 7);
}

#[test]
fn a_limit_that_cuts_nothing_changes_nothing() {
    let golden = Golden::read();
    let inner = InnerLoop::new(2, 0.05);
    let (loss, expected) = curves(&golden.networks["mlp"], &inner);
    let (same, found) = curves(&golden.networks["mlp"], &inner.with_clip_norm(Some(1e6)));
    assert!((loss - same).abs() < 1e-6);
    assert_close("clipped", &found, &expected, 1e-5);
}

#[test]
fn first_order_is_not_second_order_on_a_curved_loss() {
    let golden = Golden::read();
    let inner = InnerLoop::new(1, 0.05);
    let (_, second) = curves(&golden.networks["mlp"], &inner);
    let (_, first) = curves(&golden.networks["mlp"], &inner.with_order(Order::First));
    let far = second["layers.1.weight"].iter().zip(&first["layers.1.weight"]);
    assert!(far.map(|(one, two)| (one - two).abs()).fold(0.0, f64::max) > 1e-3);
}

/// In double precision, by every parameter and rate.
#[test]
fn outer_gradients_are_central_differences() {
    let golden = Golden::read();
    for name in [
        "conv_stride/maml/second/5",
        "conv_stride/per_step/second/3",
        "conv_stride/adam/second/3",
        "conv_stride/curvature/second/2",
        "conv_stride/per_step_norms/second/2",
    ] {
        let case = golden.cases.iter().find(|case| case.name == name).expect(name);
        let network = &golden.networks[&case.network];
        let made = learner::<B>(case, network, DType::F64);
        let (_, found) = outcome(&made, network, DType::F64);
        let mut values = network.parameters("network.");
        values.extend(case.rates());
        let loss = |name: &str, index: usize, change: f64| {
            let mut values = values.clone();
            values.get_mut(name).unwrap()[index] += change;
            outcome(&with_values::<B, _>(made.clone(), &values, DType::F64), network, DType::F64).0
        };
        for (name, gradients) in &found {
            // The first and the last value of each tensor.
            for index in [0, gradients.len() - 1] {
                let step = 1e-5;
                let slope = (loss(name, index, step) - loss(name, index, -step)) / (2.0 * step);
                let error = (slope - gradients[index]).abs();
                assert!(error < 1e-7, "{name}[{index}] is {}, not {slope}", gradients[index]);
            }
        }
    }
}

/// With so strong a tie to the start the inner loop ends at its minimum, on no edge of a ReLU,
/// where the implicit gradient is the derivative.
#[test]
fn implicit_gradients_are_central_differences_at_the_minimum() {
    let network = &Golden::read().networks["conv_stride"];
    let (encoder, features) = encoder::<B>("conv_stride");
    let classifier = Classifier::new(encoder, features, WAYS, &Default::default());
    let proximal = Proximal { strength: 1000.0, iterations: 12, damped: false };
    let inner = InnerLoop::new(20, 0.00095);
    let made = Maml::implicit(classifier.clone(), inner.clone(), proximal).unwrap();
    assert_central_differences(&made, network);

    let mut frozen = classifier;
    frozen.head.weight = frozen.head.weight.set_require_grad(false);
    let made = Maml::implicit(frozen, inner, proximal).unwrap();
    let mut values = network.parameters("network.");
    values.remove("network.head.weight");
    let found = assert_differences_of(&made, network, values);
    assert!(!found.contains_key("network.head.weight"));
}

/// In double precision.
fn assert_central_differences(
    made: &Maml<B, Classifier<B, Conv4<B>>>,
    network: &Network,
) -> Values {
    assert_differences_of(made, network, network.parameters("network."))
}

fn assert_differences_of(
    made: &Maml<B, Classifier<B, Conv4<B>>>,
    network: &Network,
    values: Values,
) -> Values {
    let outcome = |values: &Values| {
        outcome(&with_values::<B, _>(made.clone(), values, DType::F64), network, DType::F64)
    };
    assert_slopes(&values, outcome)
}

/// The head that an inner loop begins with is a function of the encoder, and the gradient goes
/// through it.
#[test]
fn gradients_through_prototypes_are_central_differences() {
    let network = &Golden::read().networks["conv_pool"];
    let (encoder, features) = encoder::<B>("conv_pool");
    let classifier = Classifier::new(encoder, features, WAYS, &Default::default());
    let made = Maml::prototypical(classifier, InnerLoop::new(2, 0.01)).unwrap();
    let found = assert_central_differences(&made, network);
    assert!(found.keys().all(|name| name.starts_with("network.encoder.")), "no head");
}

/// Without steps the head is that of a prototypical network.
#[test]
fn a_head_of_prototypes_ranks_as_a_prototypical_network_does() {
    let network = &Golden::read().networks["conv_pool"];
    let (encoder, features) = encoder::<B>("conv_pool");
    let batch = network.batch::<B>(WAYS, DType::F32);
    let classifier = Classifier::new(encoder.clone(), features, WAYS, &Default::default());
    let learner = Maml::prototypical(classifier, InnerLoop::new(1, 0.01)).unwrap();
    let found = learner.with_test_steps(0).adapt(&batch.support).predict(batch.queries.clone());
    let embed = |images: Tensor<B, 5>| {
        let tasks = images.split(1, 0).into_iter();
        let tasks = tasks.map(|task| encoder.encode(task.flatten(0, 1), BnStatistics::Batch));
        Tensor::stack::<3>(tasks.collect(), 0)
    };
    let batch = batch.into_tensors();
    let means = prototypes(embed(batch.support.images), batch.support.labels, WAYS);
    let expected = scores(embed(batch.queries), means, Metric::SquaredEuclidean);
    let log = |logits: Tensor<B, 3>| log_softmax(logits, 2).into_data().into_vec::<f32>().unwrap();
    let (found, expected) = (log(found), log(expected));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-3 * (1.0 + expected.abs()), "{found}, {expected}");
    }
}

/// Outputs beyond the classes of a task have no part in it, in either order.
#[test]
fn a_head_of_prototypes_may_have_more_outputs_than_classes() {
    let network = &Golden::read().networks["conv_pool"];
    let (encoder, features) = encoder::<B>("conv_pool");
    let batch = network.batch::<B>(WAYS, DType::F32);
    for order in [Order::First, Order::Second] {
        let of = |outputs: usize| {
            let classifier =
                Classifier::new(encoder.clone(), features, outputs, &Default::default());
            let inner = InnerLoop { order, ..InnerLoop::new(2, 0.01) };
            let learner = Maml::prototypical(classifier, inner).expect("a learner");
            let logits = learner.adapt(&batch.support).predict(batch.queries.clone());
            assert_eq!(logits.dims()[2], WAYS);
            let logits = logits.into_data().into_vec::<f32>().expect("floats");
            (logits, outcome(&learner, network, DType::F32))
        };
        let ((logits, (loss, gradients)), (wide, (wide_loss, wide_gradients))) =
            (of(WAYS), of(WAYS + 3));
        assert!((loss - wide_loss).abs() < 1e-5 * loss.abs(), "{loss}, {wide_loss}");
        assert_eq!(logits.len(), wide.len());
        for (one, other) in logits.iter().zip(&wide) {
            assert!((one - other).abs() < 1e-4 * (1.0 + one.abs()), "{one}, {other}");
        }
        assert_close("gradients", &wide_gradients, &gradients, 1e-4);
    }
    let classifier = Classifier::new(encoder, features, WAYS - 1, &Default::default());
    let learner = Maml::prototypical(classifier, InnerLoop::new(1, 0.01)).expect("a learner");
    let error = learner.check(&batch).expect_err("one output too few");
    assert!(matches!(error, AdaptError::Ways { .. }), "{error}");
}

fn plus_plus(inner: &InnerLoop, annealing: Annealing) -> Maml<B, Classifier<B, Conv4<B>>> {
    let network = &Golden::read().networks["conv_stride"];
    let (encoder, features) = encoder::<B>("conv_stride");
    let classifier = Classifier::new(encoder, features, WAYS, &Default::default());
    let classifier = with_values::<B, _>(classifier, &network.parameters(""), DType::F32);
    Maml::plus_plus(classifier, inner.clone(), annealing).expect("an inner loop that can be run")
}

#[test]
fn annealing_goes_by_the_number_of_meta_steps() {
    let network = &Golden::read().networks["conv_stride"];
    let inner = InnerLoop::new(3, 0.4);
    let mut annealed = plus_plus(&inner, Annealing { multi_step: 10, first_order: 5 });
    let settings = annealed.settings();
    assert_ne!(settings, plus_plus(&inner, Annealing::default()).settings());
    let outcomes = [
        (0, Order::First, [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]),
        (4, Order::First, [0.2, 0.2, 0.6]),
        (5, Order::Second, [1.0 / 6.0, 1.0 / 6.0, 2.0 / 3.0]),
        (10, Order::Second, [0.0, 0.0, 1.0]),
    ]
    .map(|(done, order, weights)| {
        let plain = plus_plus(&inner.clone().with_order(order), Annealing::default());
        let plain = plain.with_step_weights(weights.to_vec());
        let (expected_loss, expected) = outcome(&plain, network, DType::F32);
        annealed.at_step(done);
        let (loss, found) = outcome(&annealed, network, DType::F32);
        assert!((loss - expected_loss).abs() < 1e-6, "{done}: {loss} is not {expected_loss}");
        assert_close(&format!("after {done}"), &found, &expected, 1e-5);
        loss
    });
    assert_eq!(annealed.settings(), settings);
    assert!(outcomes.windows(2).all(|pair| (pair[0] - pair[1]).abs() > 1e-3), "{outcomes:?}");
    let name = "network.head.weight";
    let of = |order| {
        let plain = plus_plus(&inner.clone().with_order(order), Annealing::default());
        outcome(&plain, network, DType::F32).1[name].clone()
    };
    let (first, second) = (of(Order::First), of(Order::Second));
    assert!(first.iter().zip(second).any(|(one, two)| (one - two).abs() > 1e-3));
}

#[test]
fn a_trainer_tells_the_learner_where_it_is() {
    let glyphs = Glyphs::generate(&GlyphsConfig { size: 8, ..GlyphsConfig::default() }).train;
    let sampler = glyphs.sampler(Protocol::new(WAYS, 1), 1).unwrap();
    let annealing = Annealing { multi_step: 1, first_order: 0 };
    let mut learner = plus_plus(&InnerLoop::new(2, 0.4), annealing);
    let batch = sampler.batch::<B>(1..2, &Default::default());
    let [after, before] = [1, 0].map(|done| {
        learner.at_step(done);
        learner.meta_gradients(&batch, LossScale::ONE).loss.into_scalar()
    });
    assert!((after - before).abs() > 1e-3, "{after} and {before}");
    let trainer = MetaTrainer::new(learner, Adam::new().init()).episodes(sampler);
    let trained = trainer.learning_rate(0.0).meta_batch(1).steps(2).fit::<B>().unwrap();
    let loss = trained.report.last_loss.expect("two steps");
    assert!((loss - after).abs() < 1e-6, "{loss} is not {after}");
}

/// As if the last step had been learned again and again.
#[test]
fn a_test_of_more_steps_goes_on_with_the_last_rates_and_norms() {
    let golden = Golden::read();
    let case = golden.cases.iter().find(|case| case.name == "conv_stride/per_step_norms/second/2");
    let case = case.expect("a case of norms by step");
    let network = &golden.networks[&case.network];
    let short = learner::<B>(case, network, DType::F32);
    let mut values = network.parameters("network.");
    for (name, mut learned) in case.rates() {
        let last = learned[learned.len() / 2..].to_vec();
        learned.extend(last.iter().chain(&last));
        values.insert(name, learned);
    }
    let long = plus_plus(&case.inner().with_steps(4), Annealing::default());
    let long = with_values::<B, _>(long, &values, DType::F32);
    let batch = network.batch::<B>(WAYS, DType::F32);
    let logits = |learner: &Maml<B, Classifier<B, Conv4<B>>>| {
        let logits = learner.adapt(&batch.support).predict(batch.queries.clone());
        logits.into_data().into_vec::<f32>().unwrap()
    };
    assert_eq!(logits(&short.clone().with_test_steps(4)), logits(&long));
    assert_ne!(logits(&short), logits(&long));
}

#[test]
fn gains_and_shifts_of_their_own_for_each_step_do_not_move() {
    let learner = plus_plus(&InnerLoop::new(2, 0.4), Annealing::default());
    // Six tensors move: weights and biases of two convolutions and of the head.
    let lengths: Vec<_> = learner.rates().tensors().iter().map(|rates| rates.dims()[0]).collect();
    assert_eq!(lengths, [2, 2, 2, 2, 2, 2, 8, 8, 8, 8]);
    let norms = Mask::Only(vec!["encoder.blocks.0.norm".to_owned()]);
    let inner = InnerLoop::new(2, 0.4).with_mask(norms);
    let error = Maml::plus_plus(learner.network().clone(), inner, Annealing::default());
    assert!(matches!(error, Err(AdaptError::NothingMoves { .. })));
}

#[test]
fn a_diverging_inner_loop_is_told_with_task_and_step() {
    let network = &Golden::read().networks["conv_stride"];
    let (encoder, features) = encoder::<B>("conv_stride");
    let classifier = Classifier::new(encoder, features, WAYS, &Default::default());
    let learner = Maml::new(classifier, InnerLoop::new(4, 1e30)).unwrap();
    let mut batch = network.batch::<B>(WAYS, DType::F32);
    let fine = Maml::new(learner.network().clone(), InnerLoop::new(4, 0.1)).unwrap();
    assert_eq!(fine.divergence(&batch), None);
    // Fast weights are still finite after the first step, but no loss is.
    assert_eq!(learner.divergence(&batch), Some(Divergence { task: 0, step: 1 }));
    // An image that is not a number, in the second task alone.
    let [_, n, c, h, w] = batch.support.images.dims();
    let nan = Tensor::full([1, n, c, h, w], f32::NAN, &Default::default());
    let images = batch.support.images.clone();
    batch.support.images = images.slice_assign([1..2, 0..n, 0..c, 0..h, 0..w], nan);
    for lanes in [1, 2] {
        let found = fine.clone().with_lanes(lanes).divergence(&batch);
        assert_eq!(found, Some(Divergence { task: 1, step: 1 }));
    }
    // Queries that are not numbers are lost without a step.
    let mut batch = network.batch::<B>(WAYS, DType::F32);
    batch.queries = batch.queries.clone() * f32::NAN;
    assert_eq!(fine.divergence(&batch), None);
}

#[test]
fn a_scaled_loss_has_the_loss_of_one_and_its_gradients_times_the_scale() {
    let network = &Golden::read().networks["conv_stride"];
    let batch = network.batch::<B>(WAYS, DType::F32);
    let (encoder, features) = encoder::<B>("conv_stride");
    let classifier = Classifier::new(encoder, features, WAYS, &Default::default());
    let scaler = GradScalerConfig::new().with_init_scale(1024.0).init().unwrap();
    let loss = |of: &MetaGradients<B>| of.loss.to_data().iter::<f64>().next().unwrap();
    for order in [Order::First, Order::Second] {
        let inner = InnerLoop::new(2, 0.1).with_order(order);
        let learner = Maml::new(classifier.clone(), inner).unwrap();
        let one = learner.meta_gradients(&batch, LossScale::ONE);
        let scaled = learner.meta_gradients(&batch, scaler.loss_scale());
        assert!((loss(&one) - loss(&scaled)).abs() < 1e-6);
        let read = |of: &MetaGradients<B>| gradients::<B, _>(&learner, of.gradients.gradients());
        let mut expected = read(&one);
        expected.values_mut().flatten().for_each(|value| *value *= 1024.0);
        assert_close("scaled", &read(&scaled), &expected, 1e-5);
    }
}

fn layer() -> Linear<B> {
    LinearConfig::new(3, 2).init(&Default::default())
}

fn inputs<A: Backend>() -> Tensor<A, 2> {
    A::seed(&Default::default(), 3);
    Tensor::random([4, 3], Distribution::Uniform(-1.0, 1.0), &Default::default())
}

fn energy(layer: &Linear<Autodiff<B>>) -> Tensor<Autodiff<B>, 1> {
    layer.forward(inputs()).powi_scalar(2).mean()
}

fn weight<A: Backend>(layer: &Linear<A>) -> Vec<f32> {
    layer.weight.val().into_data().into_vec().unwrap()
}

#[test]
fn what_is_frozen_stays_frozen() {
    let mut layer = drawn(layer());
    layer.weight = layer.weight.set_require_grad(false);
    let adapted = adapt(&layer, energy, &InnerLoop::new(2, 0.1)).unwrap();
    assert_eq!(weight(&adapted), weight(&layer));
    let bias = |layer: &Linear<B>| layer.bias.as_ref().unwrap().val().into_data();
    assert_ne!(bias(&adapted), bias(&layer));
}

#[test]
fn what_was_adapted_can_be_adapted_further() {
    let layer = drawn(layer());
    let at_once = adapt(&layer, energy, &InnerLoop::new(2, 0.1)).unwrap();
    let one = InnerLoop::new(1, 0.1);
    let in_turns = adapt(&adapt(&layer, energy, &one).unwrap(), energy, &one).unwrap();
    assert_eq!(weight(&at_once), weight(&in_turns));
    assert_ne!(weight(&at_once), weight(&adapt(&layer, energy, &one).unwrap()));

    // What moved in the first loop, what did not, and what is frozen.
    let bias = |layer: &Linear<B>| layer.bias.as_ref().unwrap().val().into_data();
    let head = one.clone().with_mask(Mask::Only(vec!["bias".to_owned()]));
    let first = adapt(&layer, energy, &head).unwrap();
    let second = adapt(&first, energy, &one).unwrap();
    assert_ne!(bias(&second), bias(&first));
    assert_ne!(weight(&second), weight(&layer));
    let frozen = Linear { weight: layer.weight.clone().set_require_grad(false), ..layer.clone() };
    let second = adapt(&adapt(&frozen, energy, &one).unwrap(), energy, &one).unwrap();
    assert_eq!(weight(&second), weight(&layer));
}

#[test]
fn parameters_that_were_not_drawn_yet_are_drawn_once() {
    let lazy: Linear<B> = LinearConfig::new(3, 2).init(&Default::default());
    let adapted = adapt(&lazy, energy, &InnerLoop::new(1, 0.0)).unwrap();
    assert_eq!(weight(&adapted), weight(&lazy));
}

#[test]
fn what_was_frozen_before_it_was_drawn_stays_frozen() {
    let mut lazy: Linear<B> = LinearConfig::new(3, 2).init(&Default::default());
    lazy.weight = lazy.weight.set_require_grad(false);
    let adapted = adapt(&lazy, energy, &InnerLoop::new(2, 0.1)).unwrap();
    assert_eq!(weight(&adapted), weight(&lazy));
}

/// The parts that were drawn, or loaded, are parameters like the others.
#[test]
fn a_plain_backend_adapts_what_was_drawn_and_what_was_not() {
    let lazy: Linear<Flex> = LinearConfig::new(3, 2).init(&Default::default());
    let before = weight(&lazy);
    let loss = |layer: &Linear<B>| layer.forward(inputs()).powi_scalar(2).mean();
    let adapted = adapt(&lazy, loss, &InnerLoop::new(2, 0.1)).unwrap();
    assert_ne!(weight(&adapted), before);
    let bias = |layer: &Linear<Flex>| layer.bias.as_ref().unwrap().val().into_data();
    assert_ne!(bias(&adapted), bias(&lazy));
}

#[test]
fn learned_rates_are_found_on_a_plain_backend() {
    let golden = Golden::read();
    let case = golden.cases.iter().find(|case| case.name == "conv_stride/meta_sgd/second/1");
    let case = case.expect("a case of Meta-SGD");
    let network = &golden.networks[&case.network];
    let trained = learner::<B>(case, network, DType::F32);
    let (encoder, features) = encoder::<B>("conv_stride");
    let encoder = encoder.valid();
    let fresh = Classifier::<Flex, _>::new(encoder, features, WAYS, &Default::default());
    let fresh = Maml::meta_sgd(fresh, case.inner()).unwrap();
    let loaded = fresh.load_record(trained.valid().into_record());
    let batch = network.batch::<Flex>(WAYS, DType::F32);
    let logits = |learner: &Maml<Flex, _>| {
        let logits = learner.adapt(&batch.support).predict(batch.queries.clone());
        logits.into_data().into_vec::<f32>().unwrap()
    };
    assert_eq!(logits(&loaded), logits(&trained.valid()));
}

#[test]
fn a_plain_backend_fine_tunes() {
    let layer = layer().valid();
    let loss = |layer: &Linear<B>| layer.forward(inputs()).powi_scalar(2).mean();
    let adapted = adapt(&layer, loss, &InnerLoop::new(50, 0.5)).unwrap();
    let energy = |layer: &Linear<Flex>| layer.forward(inputs()).powi_scalar(2).mean().into_scalar();
    assert!(energy(&adapted) < 0.1 * energy(&layer));
    // Burn's marks of what is frozen are lost here, by a record or by a clone.
    let record = layer.clone().into_record();
    let loaded = layer.clone().load_record(record);
    let again = adapt(&loaded, loss, &InnerLoop::new(50, 0.5)).unwrap();
    assert_eq!(weight(&again), weight(&adapted));
}

/// An encoder with Burn's own layer, which has no lanes and no second derivative.
#[derive(Module, Debug)]
struct Stock<B: Backend> {
    layer: BurnLinear<B>,
}

impl<B: Backend> Encoder<B> for Stock<B> {
    fn encode(&self, images: Tensor<B, 4>, _: BnStatistics) -> Tensor<B, 2> {
        self.layer.forward(images.flatten(1, 3))
    }

    fn architecture(&self) -> String {
        "stock".to_owned()
    }
}

fn stock(order: Order) -> Maml<B, Classifier<B, Stock<B>>> {
    let device = Default::default();
    B::seed(&device, 1);
    let encoder = Stock { layer: BurnLinearConfig::new(64, 6).init(&device) };
    let inner = InnerLoop::new(2, 0.5).with_order(order);
    Maml::new(Classifier::new(encoder, 6, WAYS, &device), inner).unwrap()
}

fn episodes() -> EpisodeBatch<B> {
    Golden::read().networks["conv_stride"].batch(WAYS, DType::F32)
}

#[test]
fn first_order_serves_every_layer_of_burn() {
    let learner = stock(Order::First);
    let found = learner.meta_gradients(&episodes(), LossScale::ONE);
    let found = gradients::<B, _>(&learner, found.gradients.gradients());
    let names = ["encoder.layer.bias", "encoder.layer.weight", "head.bias", "head.weight"];
    let names: Vec<_> = names.iter().map(|name| format!("network.{name}")).collect();
    assert_eq!(found.keys().cloned().collect::<Vec<_>>(), names);
    assert!(found.values().flatten().all(|value| value.is_finite()));
    assert!(learner.architecture().contains("stock"), "{}", learner.architecture());
    // In the test as well, where nothing is differentiated twice.
    let batch = Golden::read().networks["conv_stride"].batch::<Flex>(WAYS, DType::F32);
    let logits = learner.valid().adapt(&batch.support).predict(batch.queries.clone());
    assert_eq!(logits.dims(), [2, 6, WAYS]);
}

#[test]
fn a_layer_that_cannot_be_differentiated_twice_is_named() {
    let learner = stock(Order::Second);
    let error = learner.check(&episodes()).unwrap_err();
    let AdaptError::NotTwice { layer, places, .. } = &error else { panic!("{error}") };
    assert_eq!(*layer, "Linear");
    assert_eq!(places, &["encoder.layer", "head"]);
    assert!(error.to_string().contains("; it is among encoder.layer, head;"), "{error}");
    // A trainer says so before it begins.
    let glyphs = Glyphs::generate(&GlyphsConfig { size: 8, ..GlyphsConfig::default() }).train;
    let trainer = MetaTrainer::new(learner, Adam::new().init())
        .episodes(glyphs.sampler(Protocol::new(WAYS, 1), 1).unwrap());
    let refused = trainer.fit::<B>().unwrap_err();
    assert!(matches!(refused, TrainError::Learner(AdaptError::NotTwice { .. })), "{refused}");

    let layer: BurnLinear<B> = BurnLinearConfig::new(3, 2).init(&Default::default());
    let energy = |layer: &BurnLinear<Autodiff<B>>| layer.forward(inputs()).powi_scalar(2).mean();
    let error = adapt(&layer, energy, &InnerLoop::new(1, 0.1)).unwrap_err();
    assert!(error.to_string().contains("gradient of Linear"), "{error}");
    let refused = adapt(&self::layer(), self::energy, &InnerLoop::new(1, f64::NAN)).unwrap_err();
    assert!(matches!(refused, AdaptError::Setting { name: "rate", .. }), "{refused}");
    // Nothing was left locked, and on a plain backend one derivative is enough.
    assert!(adapt(&self::layer(), self::energy, &InnerLoop::new(1, 0.1)).is_ok());
    let energy = |layer: &BurnLinear<B>| layer.forward(inputs()).powi_scalar(2).mean();
    assert!(adapt(&layer.valid(), energy, &InnerLoop::new(1, 0.1)).is_ok());
    // Every other panic stays one.
    let shapes = std::panic::catch_unwind(|| {
        let wrong = |layer: &Linear<Autodiff<B>>| {
            layer.forward(Tensor::ones([1, 7], &Default::default())).mean()
        };
        adapt(&self::layer(), wrong, &InnerLoop::new(1, 0.1))
    });
    assert!(shapes.is_err());
}

#[test]
fn inner_loops_that_make_no_sense_are_refused() {
    let made = |inner: InnerLoop| {
        let (encoder, features) = encoder::<B>("conv_stride");
        let classifier = Classifier::new(encoder, features, WAYS, &Default::default());
        Maml::new(classifier, inner).map(drop).unwrap_err()
    };
    let inner = InnerLoop::new(1, 0.1);
    assert_eq!(made(inner.clone().with_steps(0)), AdaptError::NoSteps { method: "maml" });
    let nothing = made(inner.clone().with_mask(Mask::Only(vec!["tail".to_owned()])));
    assert!(nothing.to_string().contains("only tail"), "{nothing}");
    assert!(nothing.to_string().contains("encoder.blocks.0.conv.weight"), "{nothing}");
    // A name is a whole name.
    let part = made(inner.clone().with_mask(Mask::Only(vec!["enc".to_owned()])));
    assert!(matches!(part, AdaptError::NothingMoves { .. }));
    for (inner, name) in [
        (InnerLoop::new(1, f64::NAN), "rate"),
        (InnerLoop::new(1, -0.1), "rate"),
        (inner.clone().with_clip_norm(Some(0.0)), "norm"),
        (inner.clone().with_rule(InnerRule::Momentum { momentum: 1.0 }), "momentum"),
        (
            inner.clone().with_rule(InnerRule::Adam {
                beta_1: 0.9,
                beta_2: 0.999,
                epsilon: 1e-8,
                epsilon_root: 0.0,
            }),
            "epsilon_root",
        ),
    ] {
        let error = made(inner);
        assert!(
            matches!(error, AdaptError::Setting { name: found, .. } if found == name),
            "{error}"
        );
    }
}

#[test]
fn implicit_gradients_want_a_strength_and_an_iteration() {
    let proximal = Proximal { strength: 2.0, iterations: 1, damped: false };
    for (proximal, setting) in [
        (Proximal { strength: 0.0, ..proximal }, "proximal strength"),
        (Proximal { strength: f64::INFINITY, ..proximal }, "proximal strength"),
        (Proximal { iterations: 0, ..proximal }, "conjugate gradients"),
    ] {
        let network = stock(Order::First).network().clone();
        let error = Maml::implicit(network, InnerLoop::new(1, 0.1), proximal).map(drop);
        let refused =
            matches!(error, Err(AdaptError::Setting { name: found, .. }) if found == setting);
        assert!(refused, "{error:?}");
    }
}

#[test]
#[should_panic(expected = "a network has at least one lane")]
fn a_network_without_lanes_is_refused() {
    let _ = stock(Order::First).with_lanes(0);
}

#[test]
#[should_panic(expected = "a classifier of 3 ways cannot learn 2-way tasks")]
fn a_task_of_other_ways_is_refused() {
    let mut batch = episodes();
    batch.support.ways = 2;
    stock(Order::First).meta_gradients(&batch, LossScale::ONE);
}
