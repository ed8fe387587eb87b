//! Values from PyTorch; `tests/golden/optimizers.py` has made them.

use std::collections::BTreeMap;

use fewshot_kernels::StepRule;
use fewshot_kernels::optim_step::WeightDecay;

use super::set::{adam, lamb, sgd};

#[derive(serde::Deserialize)]
pub struct Golden {
    pub learning_rate: f64,
    pub shapes: Vec<Vec<usize>>,
    pub start: Vec<Vec<f32>>,
    /// By step and parameter.
    pub gradients: Vec<Vec<Vec<f32>>>,
    /// By rule, step and parameter.
    pub after: BTreeMap<String, Vec<Vec<Vec<f32>>>>,
}

impl Golden {
    pub fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/optimizers.json");
        serde_json::from_reader(std::fs::File::open(path).unwrap()).unwrap()
    }

    /// Whether a parameter has a gradient at a step.
    pub fn moves(step: usize, parameter: usize) -> bool {
        (step, parameter) != (1, 1)
    }
}

pub fn rule(name: &str) -> StepRule {
    let other = |beta_1, beta_2, epsilon, weight_decay| StepRule::Adam {
        beta_1,
        beta_2,
        epsilon,
        weight_decay,
    };
    match name {
        "sgd" => sgd(None, false, 0.0),
        "sgd_decay" => sgd(None, false, 0.3),
        "momentum" => sgd(Some([0.9, 0.0]), false, 0.0),
        "momentum_dampened" => sgd(Some([0.8, 0.1]), false, 0.2),
        "nesterov" => sgd(Some([0.9, 0.0]), true, 0.1),
        "adam" => adam(WeightDecay::NONE),
        "adam_decay" => other(0.8, 0.95, 1e-3, WeightDecay::L2(0.2)),
        "adam_w" => adam(WeightDecay::Decoupled(0.01)),
        "adam_w_strong" => other(0.7, 0.9, 1e-8, WeightDecay::Decoupled(0.9)),
        "lamb" => lamb(0.01),
        "lamb_no_decay" => lamb(0.0),
        name => panic!("no rule is called {name}"),
    }
}
