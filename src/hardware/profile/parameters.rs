use std::collections::HashSet;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, DType, Int, Tensor};
use fewshot_models::nn::{RUNNING_AVERAGES, draw};
use serde::{Deserialize, Serialize};

use crate::hardware::Bytes;

/// One tensor of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterProfile {
    /// Names of the modules it is in and its own, with dots between.
    pub path: String,
    /// Number of elements.
    pub values: u64,
    /// What they take.
    pub bytes: Bytes,
    /// Whether it gets a gradient.
    pub trainable: bool,
}

impl ParameterProfile {
    pub(super) fn is_in(&self, module: &str) -> bool {
        let rest = self.path.strip_prefix(module);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

pub(super) fn of<B: Backend, M: Module<B>>(module: &M) -> Vec<ParameterProfile> {
    draw::<B, M>(module);
    let mut counted = Counted::default();
    module.visit(&mut counted);
    counted.parameters
}

#[derive(Default)]
struct Counted {
    path: Vec<String>,
    seen: HashSet<ParamId>,
    parameters: Vec<ParameterProfile>,
}

impl Counted {
    fn add(&mut self, id: ParamId, values: usize, dtype: DType, trainable: bool) {
        if !self.seen.insert(id) {
            return;
        }
        self.parameters.push(ParameterProfile {
            path: self.path.join("."),
            values: values as u64,
            bytes: Bytes((values * dtype.size()) as u64),
            trainable,
        });
    }
}

impl<B: Backend> ModuleVisitor<B> for Counted {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let value = param.val();
        let trainable = match B::ad_enabled(&value.device()) {
            true => value.is_require_grad(),
            false => {
                let name = self.path.last().map(String::as_str);
                !name.is_some_and(|name| RUNNING_AVERAGES.contains(&name))
            }
        };
        self.add(param.id, value.shape().num_elements(), value.dtype(), trainable);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        let value = param.val();
        self.add(param.id, value.shape().num_elements(), value.dtype(), false);
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        let value = param.val();
        self.add(param.id, value.shape().num_elements(), value.dtype(), false);
    }
}
