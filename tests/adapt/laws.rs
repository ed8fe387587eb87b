//! Laws for any backend.

use burn::module::Module;
use burn::tensor::DType;
use burn::tensor::backend::AutodiffBackend;
use fewshot::adapt::{InnerRates, RateKind, SecondOrder};
use fewshot::learners::{Maml, MetaGradients, MetaLearner};
use fewshot::models::{Classifier, Conv4, Conv4Config, Downsampling, Readout};

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
) -> Maml<B, Conv4<B>> {
    let (encoder, features) = encoder::<B>(&case.network);
    let classifier = Classifier::new(encoder, features, WAYS, &Default::default());
    let learner = match case.rule {
        Rule::MetaSgd => Maml::meta_sgd(classifier, case.inner()),
        Rule::PerStep => Maml::with_rates_per_step(classifier, case.inner()),
        _ => Maml::new(classifier, case.inner()),
    };
    let mut learner = learner.expect("an inner loop that can be run");
    if let Some(weights) = &case.weights {
        learner = learner.with_step_weights(weights.clone());
    }
    let mut values = network.parameters("classifier.");
    values.extend(case.rates());
    with_values::<B, _>(learner, &values, dtype)
}

/// Loss and gradients by name.
pub fn outcome<B: AutodiffBackend>(
    learner: &Maml<B, Conv4<B>>,
    network: &Network,
    dtype: DType,
) -> (f64, Values) {
    let batch = network.batch::<B>(WAYS, dtype);
    let MetaGradients { loss, gradients: found, .. } = learner.meta_gradients(&batch);
    let loss = loss.into_data().iter::<f64>().next().unwrap();
    (loss, gradients::<B, _>(learner, &found))
}

pub fn gradients_are_those_of_pytorch<B: AutodiffBackend>() {
    let golden = Golden::read();
    let cases = golden.cases.iter().filter(|case| case.network != "mlp");
    let mut checked = 0;
    for case in cases {
        let network = &golden.networks[&case.network];
        let learner = learner::<B>(case, network, DType::F32);
        let (loss, found) = outcome(&learner, network, DType::F32);
        assert!((loss - case.loss).abs() < 1e-5 * case.loss, "{}: loss {loss}", case.name);
        assert_close(&case.name, &found, &case.gradients("classifier."), 2e-5);
        checked += 1;
    }
    assert!(checked >= 17, "only {checked} cases");
}
