//! Values of PyTorch, made by `tests/golden/meta_gradients.py`.

use std::collections::HashMap;

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor, TensorData};
use fewshot::adapt::{InnerLoop, InnerRule, Mask, Order};
use fewshot::episode::{EpisodeBatch, EpisodeTensors, Support};
use serde::Deserialize;

use crate::named::Values;

#[derive(Deserialize)]
pub struct Golden {
    pub networks: HashMap<String, Network>,
    pub cases: Vec<Case>,
}

#[derive(Deserialize)]
pub struct Network {
    parameters: Vec<Named>,
    support: Shaped,
    support_labels: Labels,
    queries: Shaped,
    query_labels: Labels,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    values: Vec<f64>,
}

#[derive(Clone, Deserialize)]
struct Shaped {
    shape: Vec<usize>,
    values: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Labels {
    Classes(Vec<Vec<i32>>),
    Targets(Shaped),
}

#[derive(Deserialize)]
pub struct Case {
    pub name: String,
    pub network: String,
    pub rule: Rule,
    steps: usize,
    pub order: Order,
    adapts: String,
    pub loss: f64,
    gradients: Vec<Named>,
    #[serde(default)]
    rates: Vec<Named>,
    #[serde(default)]
    rate_gradients: Vec<Named>,
    pub weights: Option<Vec<f64>>,
}

#[derive(Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Rule {
    GradientDescent { rate: f64, clip: Option<f64> },
    Momentum { rate: f64, momentum: f64 },
    Adam { rate: f64, beta_1: f64, beta_2: f64, epsilon: f64, epsilon_root: f64 },
    MetaSgd,
    PerStep,
    PerStepNorms,
    Curvature { rate: f64 },
}

impl Golden {
    pub fn read() -> Self {
        let text = include_str!("../golden/meta_gradients.json");
        serde_json::from_str(text).expect("golden values")
    }
}

impl Shaped {
    fn tensor<B: Backend, const D: usize>(&self, dtype: DType) -> Tensor<B, D> {
        let shape: [usize; D] = self.shape.clone().try_into().expect("the rank asked for");
        let data = TensorData::new(self.values.clone(), shape);
        Tensor::from_data(data, (&Default::default(), dtype))
    }
}

fn values(named: &[Named], name: impl Fn(usize, &str) -> String) -> Values {
    let pairs = named.iter().enumerate();
    pairs.map(|(index, one)| (name(index, &one.name), one.values.clone())).collect()
}

impl Network {
    /// Parameters by name behind `prefix`.
    pub fn parameters(&self, prefix: &str) -> Values {
        values(&self.parameters, |_, name| format!("{prefix}{name}"))
    }

    /// The tasks as episodes of `ways` classes.
    pub fn batch<B: Backend>(&self, ways: usize, dtype: DType) -> EpisodeBatch<B> {
        let labels = |labels: &Labels| {
            let Labels::Classes(tasks) = labels else { panic!("classes") };
            let shape = [tasks.len(), tasks[0].len()];
            Tensor::from_data(TensorData::new(tasks.concat(), shape), &Default::default())
        };
        let support = self.support.tensor(dtype);
        EpisodeBatch::from(EpisodeTensors {
            support: Support { images: support, labels: labels(&self.support_labels), ways },
            queries: self.queries.tensor(dtype),
            query_labels: labels(&self.query_labels),
        })
    }

    /// Inputs and targets of support and queries, each `[t, n, 1]`.
    pub fn curves<B: Backend>(&self, dtype: DType) -> [Tensor<B, 3>; 4] {
        let targets = |labels: &Labels| {
            let Labels::Targets(targets) = labels else { panic!("targets") };
            targets.tensor(dtype)
        };
        let (support, queries) = (self.support.tensor(dtype), self.queries.tensor(dtype));
        [support, targets(&self.support_labels), queries, targets(&self.query_labels)]
    }
}

impl Case {
    /// Learned rates begin at a value that is then replaced.
    pub fn inner(&self) -> InnerLoop {
        let steps = self.steps;
        let inner = match self.rule {
            Rule::GradientDescent { rate, clip: None } | Rule::Curvature { rate } => {
                InnerLoop::new(steps, rate)
            }
            Rule::GradientDescent { rate, clip: Some(norm) } => {
                InnerLoop::new(steps, rate).with_clip_norm(Some(norm))
            }
            Rule::Momentum { rate, momentum } => {
                InnerLoop::new(steps, rate).with_rule(InnerRule::Momentum { momentum })
            }
            Rule::Adam { rate, beta_1, beta_2, epsilon, epsilon_root } => {
                let rule = InnerRule::Adam { beta_1, beta_2, epsilon, epsilon_root };
                InnerLoop::new(steps, rate).with_rule(rule)
            }
            Rule::MetaSgd | Rule::PerStep | Rule::PerStepNorms => InnerLoop::new(steps, 1.0),
        };
        let mask = match self.adapts.as_str() {
            "all" => Mask::All,
            part => Mask::Only(vec![part.to_owned()]),
        };
        inner.with_order(self.order).with_mask(mask)
    }

    /// Learned rates by their names in the learner.
    pub fn rates(&self) -> Values {
        values(&self.rates, |index, name| self.rate_name(index, name))
    }

    /// Gains and shifts by step are behind the rates.
    fn rate_name(&self, index: usize, name: &str) -> String {
        let is_norm = |name: &str| {
            let norm = name.ends_with(".gamma") || name.ends_with(".beta");
            norm && matches!(self.rule, Rule::PerStepNorms)
        };
        match is_norm(name) {
            true => {
                let rates = self.rates.iter().filter(|rate| !is_norm(&rate.name)).count();
                format!("rates.norms.rows.{}", index - rates)
            }
            false => format!("rates.rates.{index}"),
        }
    }

    /// Gradients by name behind `prefix`, those of the rates by their names in the learner.
    pub fn gradients(&self, prefix: &str) -> Values {
        let mut all = values(&self.gradients, |_, name| format!("{prefix}{name}"));
        all.extend(values(&self.rate_gradients, |index, name| self.rate_name(index, name)));
        all
    }
}
