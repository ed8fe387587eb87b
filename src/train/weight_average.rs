//! The exponential moving average of a learner's weights.

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};
use fewshot_models::nn::RUNNING_AVERAGES;

/// Averages of all float parameters by their ids; running averages of batch-norm are copies.
///
/// After the step with the index `s`, `average = weight + d * (average - weight)` with
/// `d = min(decay, (1 + s) / (10 + s))`. The average begins at the weights before the first step, which the
/// smaller `d` of early steps soon forgets, so there is no correction of a bias.
pub(super) struct WeightAverage<B: AutodiffBackend> {
    decay: f64,
    values: HashMap<ParamId, FloatTensor<B::InnerBackend>>,
}

impl<B: AutodiffBackend> WeightAverage<B> {
    /// The average at these weights.
    pub(super) fn new<M: Module<B>>(decay: f64, module: &M) -> Self {
        let mut average = Self { decay, values: HashMap::new() };
        average.walk(module, 0.0);
        average
    }

    /// Counts in the weights after the step with the index `step`.
    pub(super) fn update<M: Module<B>>(&mut self, module: &M, step: u64) {
        let step = step as f64;
        self.walk(module, self.decay.min((1.0 + step) / (10.0 + step)));
    }

    fn walk<M: Module<B>>(&mut self, module: &M, decay: f64) {
        module.visit(&mut Walk::<B> { values: &mut self.values, decay, within: Vec::new() });
    }

    /// `module` with the averages for weights.
    pub(super) fn apply<M: Module<B>>(&self, module: M) -> M {
        module.map(&mut Apply::<B>(&self.values))
    }
}

struct Walk<'a, B: AutodiffBackend> {
    values: &'a mut HashMap<ParamId, FloatTensor<B::InnerBackend>>,
    /// Share of the average that stays.
    decay: f64,
    within: Vec<String>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Walk<'_, B> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.within.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.within.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let weight = param.val().inner();
        let name = self.within.last().map(String::as_str);
        let is_copied = name.is_some_and(|name| RUNNING_AVERAGES.contains(&name));
        let value = match self.values.remove(&param.id) {
            Some(average) if !is_copied => {
                let average: Tensor<B::InnerBackend, D> =
                    Tensor::from_primitive(TensorPrimitive::Float(average));
                weight.clone() + (average - weight) * self.decay
            }
            _ => weight,
        };
        self.values.insert(param.id, value.into_primitive().tensor());
    }
}

struct Apply<'a, B: AutodiffBackend>(&'a HashMap<ParamId, FloatTensor<B::InnerBackend>>);

impl<B: AutodiffBackend> ModuleMapper<B> for Apply<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(average) = self.0.get(&param.id).cloned() else { return param };
        let average = Tensor::from_primitive(TensorPrimitive::Float(average));
        let (id, weight, mapper) = param.consume();
        let average = Tensor::from_inner(average);
        let average = if weight.is_require_grad() { average.require_grad() } else { average };
        Param::from_mapped_value(id, average, mapper)
    }
}
