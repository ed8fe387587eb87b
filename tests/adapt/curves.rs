//! Regression on any backend: the golden sine curves.

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Tensor};
use fewshot::adapt::SecondOrder;
use fewshot::episode::{Examples, Regression, RegressionBatch};
use fewshot::models::{Mlp, MlpConfig};

use crate::golden::{Golden, Network};
use crate::laws::{learner_of, outcome_on};
use crate::named::assert_close;

/// The tasks of the golden curves.
pub fn batch<B: Backend>(network: &Network, dtype: DType) -> RegressionBatch<B> {
    let [x, y, query, target] = network.curves::<B>(dtype);
    let examples = |inputs: Tensor<B, 3>, targets| Examples {
        inputs: inputs.unsqueeze_dims(&[3, 4]),
        targets,
    };
    RegressionBatch { support: examples(x, y), queries: examples(query, target) }
}

/// The network of the golden curves.
pub fn mlp<B: Backend>() -> Mlp<B> {
    MlpConfig::new(1).with_layers(vec![8, 8, 1]).init(&Default::default())
}

/// Every rule and order, by both ways to the derivative, with tasks side by side and not.
pub fn regressions_have_the_gradients_of_pytorch<B: AutodiffBackend>() {
    let golden = Golden::read();
    let network = &golden.networks["mlp"];
    let batch = batch::<B>(network, DType::F32);
    let mut checked = 0;
    for case in golden.cases.iter().filter(|case| case.network == "mlp") {
        let made = learner_of::<B, _>(case, mlp::<B>(), network, DType::F32);
        for route in [SecondOrder::Chain, SecondOrder::Unrolled] {
            for lanes in [1, 8] {
                let what = format!("{} by {route:?} in {lanes} lanes", case.name);
                let learner = made.clone().with_second_order(route).with_lanes(lanes);
                let (loss, found) = outcome_on::<B, Regression, _>(&learner, &batch);
                assert!((loss - case.loss).abs() < 1e-5 * case.loss, "{what}: loss {loss}");
                assert_close(&what, &found, &case.gradients("network."), 1e-4);
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 40);
}
