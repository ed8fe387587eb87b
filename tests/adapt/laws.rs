//! Laws for any backend.

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Tensor};
use fewshot::adapt::{InnerLoop, Mask, Order, SecondOrder};
use fewshot::episode::{Classification, TaskKind};
use fewshot::learners::{
    AdaptableNetwork, Adapted, Annealing, Learner, Maml, MetaGradients, MetaLearner,
};
use fewshot::models::{BnStatistics, Classifier, Conv4, Conv4Config, Downsampling, Readout};
use fewshot::precision::LossScale;

use crate::golden::{Case, Golden, Network, Rule};
use crate::named::{Values, assert_close, gradients, with_values};

pub const WAYS: usize = 3;

/// The convolutional networks of the golden values.
pub fn encoder<B: AutodiffBackend>(network: &str) -> (Conv4<B>, usize) {
    let config = Conv4Config::new([1, 8, 8]).with_channels(4).with_blocks(2);
    let config = match network {
        "conv_stride" => {
            config.with_downsampling(Downsampling::Stride).with_readout(Readout::Average)
        }
        "conv_pool" => config,
        other => panic!("no network called {other}"),
    };
    (config.init(&Default::default()), config.features())
}

/// The learner of a golden case.
pub fn learner<B: AutodiffBackend>(
    case: &Case,
    network: &Network,
    dtype: DType,
) -> Maml<B, Classifier<B, Conv4<B>>> {
    let (encoder, features) = encoder::<B>(&case.network);
    let classifier = Classifier::new(encoder, features, WAYS, &Default::default());
    learner_of(case, classifier, network, dtype)
}

/// The learner of a golden case, with a module for its network.
pub fn learner_of<B: AutodiffBackend, N: AdaptableNetwork<B>>(
    case: &Case,
    module: N,
    network: &Network,
    dtype: DType,
) -> Maml<B, N> {
    let learner = match case.rule {
        Rule::MetaSgd => Maml::meta_sgd(module, case.inner()),
        Rule::PerStep => Maml::with_rates_per_step(module, case.inner()),
        Rule::PerStepNorms => Maml::plus_plus(module, case.inner(), Annealing::default()),
        Rule::Curvature { .. } => Maml::meta_curvature(module, case.inner()),
        _ => Maml::new(module, case.inner()),
    };
    let mut learner = learner.expect("an inner loop that can be run");
    if let Some(weights) = &case.weights {
        learner = learner.with_step_weights(weights.clone());
    }
    let mut values = network.parameters("network.");
    values.extend(case.rates());
    with_values::<B, _>(learner, &values, dtype)
}

/// Loss and gradients by name.
pub fn outcome<B: AutodiffBackend>(
    learner: &Maml<B, Classifier<B, Conv4<B>>>,
    network: &Network,
    dtype: DType,
) -> (f64, Values) {
    outcome_on::<B, Classification, _>(learner, &network.batch(WAYS, dtype))
}

/// The same on any tasks.
pub fn outcome_on<B: AutodiffBackend, K: TaskKind, L: MetaLearner<B, K>>(
    learner: &L,
    batch: &K::Batch<B>,
) -> (f64, Values) {
    let MetaGradients { loss, gradients: found, .. } =
        learner.meta_gradients(batch, LossScale::ONE);
    let loss = loss.into_data().iter::<f64>().next().unwrap();
    (loss, gradients::<B, _>(learner, found.gradients()))
}

pub fn convolutional(golden: &Golden) -> impl Iterator<Item = (&Case, &Network)> {
    let cases = golden.cases.iter().filter(|case| case.network != "mlp");
    cases.map(|case| (case, &golden.networks[&case.network]))
}

/// Every rule, mask and order, by both ways to the derivative, with tasks side by side and not.
pub fn gradients_are_those_of_pytorch<B: AutodiffBackend>() {
    let golden = Golden::read();
    let mut checked = 0;
    for (case, network) in convolutional(&golden) {
        for (route, lanes) in [(SecondOrder::Chain, 8), (SecondOrder::Unrolled, 1)] {
            let what = format!("{} by {route:?} in {lanes} lanes", case.name);
            let learner = learner::<B>(case, network, DType::F32);
            let learner = learner.with_second_order(route).with_lanes(lanes);
            let (loss, found) = outcome(&learner, network, DType::F32);
            assert!((loss - case.loss).abs() < 1e-5 * case.loss, "{what}: loss {loss}");
            // NdArray divides by reciprocals of twelve bits; a derivative left out is 4e-3 and
            // more.
            assert_close(&what, &found, &case.gradients("network."), 1e-4);
            checked += 1;
        }
    }
    assert!(checked >= 58, "only {checked} cases");
}

/// A learner with the parameters of the golden network.
fn made<B: AutodiffBackend>(
    network: &str,
    inner: InnerLoop,
) -> (Maml<B, Classifier<B, Conv4<B>>>, Golden) {
    let golden = Golden::read();
    let (encoder, features) = encoder::<B>(network);
    let classifier = Classifier::new(encoder, features, WAYS, &Default::default());
    let learner = Maml::new(classifier, inner).expect("an inner loop that can be run");
    let values = golden.networks[network].parameters("network.");
    (with_values::<B, _>(learner, &values, DType::F32), golden)
}

/// Where the matrices of Meta-Curvature begin, it is MAML.
pub fn curvature_of_identities_is_maml<B: AutodiffBackend>() {
    for order in [Order::First, Order::Second] {
        let (maml, golden) = made::<B>("conv_pool", InnerLoop::new(2, 0.4).with_order(order));
        let network = &golden.networks["conv_pool"];
        let curved = Maml::meta_curvature(maml.network().clone(), maml.inner().clone());
        let curved = curved.expect("an inner loop that can be run");
        let (expected_loss, expected) = outcome(&maml, network, DType::F32);
        let (loss, mut found) = outcome(&curved, network, DType::F32);
        assert!((loss - expected_loss).abs() < 1e-6, "{order:?}: {loss} is not {expected_loss}");
        found.retain(|name, _| name.starts_with("network."));
        assert_close(&format!("{order:?}"), &found, &expected, 1e-6);
    }
}

pub fn read<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().into_vec().unwrap()
}

pub fn a_zero_rate_is_the_identity<B: AutodiffBackend>() {
    let (learner, golden) = made::<B>("conv_stride", InnerLoop::new(3, 0.0));
    let batch = golden.networks["conv_stride"].batch::<B>(WAYS, DType::F32);
    let adapted = learner.adapt(&batch.support).predict(batch.queries.clone());
    for task in 0..2 {
        let queries = batch.queries.clone().narrow(0, task, 1).flatten::<4>(0, 1);
        let plain = read(learner.network().forward(queries, BnStatistics::Batch));
        for (found, expected) in read(adapted.clone().narrow(0, task, 1)).iter().zip(plain) {
            assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
        }
    }
    let (moved, _) = made::<B>("conv_stride", InnerLoop::new(3, 0.4));
    let moved = read(moved.adapt(&batch.support).predict(batch.queries.clone()));
    let far = moved.iter().zip(read(adapted)).any(|(one, two)| (one - two).abs() > 1e-2);
    assert!(far, "a rate that is not zero changes the logits");
}

pub fn tasks_side_by_side_are_tasks_one_by_one<B: AutodiffBackend>() {
    for mask in [Mask::All, Mask::Only(vec!["head".into()]), Mask::Except(vec!["head".into()])] {
        for order in [Order::First, Order::Second] {
            let inner = InnerLoop::new(2, 0.3).with_mask(mask.clone()).with_order(order);
            let (learner, golden) = made::<B>("conv_pool", inner);
            let network = &golden.networks["conv_pool"];
            let batch = network.batch::<B>(WAYS, DType::F32);
            let what = format!("{mask}, {order:?}");
            let logits = |lanes: usize| {
                let learner = learner.clone().with_lanes(lanes);
                read(learner.adapt(&batch.support).predict(batch.queries.clone()))
            };
            for (one, two) in logits(1).iter().zip(logits(2)) {
                assert!((one - two).abs() < 2e-4, "{what}: a logit of {one} and of {two}");
            }
            let (loss, expected) = outcome(&learner.clone().with_lanes(1), network, DType::F32);
            let (side_by_side, found) = outcome(&learner, network, DType::F32);
            assert!((loss - side_by_side).abs() < 1e-4, "{what}: {loss} and {side_by_side}");
            assert_close(&what, &found, &expected, 2e-4);
        }
    }
}
