//! Memory of a module, counted from the module itself.

use std::collections::HashSet;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::backend::Backend;
use burn::tensor::{BasicOps, Bool, Int, Tensor};
use fewshot_models::nn::{RUNNING_AVERAGES, draw};
use serde::{Deserialize, Serialize};

use super::{Bytes, MemoryFigure};

/// The parameters of a module, and the memory for training them beside activations.
///
/// # Example
/// ```
/// use burn::backend::{Autodiff, Flex};
/// use fewshot::hardware::{ModelProfile, OptimizerKind};
/// use fewshot::models::MlpConfig;
///
/// let mlp = MlpConfig::new(1).with_layers(vec![40, 40, 1]).init::<Autodiff<Flex>>(&Default::default());
/// let profile = ModelProfile::of(&mlp);
/// assert_eq!(profile.bytes().bytes.0, 4 * 1761);
/// assert_eq!(profile.optimizer_state(OptimizerKind::Adam).to_string(), "13.8 KiB exact");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelProfile {
    /// Every tensor of the module in the order in which it is visited, one that is in several
    /// places where it comes first.
    pub parameters: Vec<ParameterProfile>,
}

impl ModelProfile {
    /// Counts the tensors of `module`, drawing those that were not drawn yet.
    ///
    /// # Conventions
    /// A tensor is trainable if the module's backend differentiates by it. A backend without
    /// autodiff tells of none; there all float tensors except the running averages of batch-norm
    /// are taken for trainable.
    pub fn of<B: Backend, M: Module<B>>(module: &M) -> Self {
        draw::<B, M>(module);
        let mut counted = Counted::default();
        module.visit(&mut counted);
        Self { parameters: counted.parameters }
    }

    /// All tensors, running averages included.
    pub fn bytes(&self) -> MemoryFigure {
        self.parameters.iter().map(ParameterProfile::figure).sum()
    }

    /// The tensors that training moves; their gradients take as much.
    pub fn trainable(&self) -> MemoryFigure {
        self.moved().map(ParameterProfile::figure).sum()
    }

    /// The largest tensor that training moves.
    pub fn largest_trainable(&self) -> MemoryFigure {
        MemoryFigure::exact(self.moved().map(|parameter| parameter.bytes.0).max().unwrap_or(0))
    }

    /// Number of values that training moves.
    pub fn trainable_values(&self) -> u64 {
        self.moved().map(|parameter| parameter.values).sum()
    }

    /// The trainable tensors in the module of this name, `head` or `encoder.blocks.3`.
    pub fn trainable_in(&self, module: &str) -> MemoryFigure {
        let within = self.moved().filter(|parameter| parameter.is_in(module));
        within.map(ParameterProfile::figure).sum()
    }

    /// State of an optimizer after its first step.
    pub fn optimizer_state(&self, optimizer: OptimizerKind) -> MemoryFigure {
        self.trainable().times(optimizer.copies())
    }

    fn moved(&self) -> impl Iterator<Item = &ParameterProfile> {
        self.parameters.iter().filter(|parameter| parameter.trainable)
    }
}

/// One tensor of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterProfile {
    /// Names of the modules it is in and its own, with dots between.
    pub path: String,
    /// Number of elements.
    pub values: u64,
    /// Memory of the elements.
    pub bytes: Bytes,
    /// True if it gets a gradient.
    pub trainable: bool,
}

impl ParameterProfile {
    fn figure(&self) -> MemoryFigure {
        MemoryFigure::exact(self.bytes.0)
    }

    fn is_in(&self, module: &str) -> bool {
        let rest = self.path.strip_prefix(module);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

#[derive(Default)]
struct Counted {
    path: Vec<String>,
    seen: HashSet<ParamId>,
    parameters: Vec<ParameterProfile>,
}

impl Counted {
    fn add<B: Backend, const D: usize, K: BasicOps<B>>(
        &mut self,
        id: ParamId,
        value: &Tensor<B, D, K>,
        trainable: bool,
    ) {
        if !self.seen.insert(id) {
            return;
        }
        let values = value.shape().num_elements();
        self.parameters.push(ParameterProfile {
            path: self.path.join("."),
            values: values as u64,
            bytes: Bytes((values * value.dtype().size()) as u64),
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
        self.add(param.id, &value, trainable);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.add(param.id, &param.val(), false);
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.add(param.id, &param.val(), false);
    }
}

/// An optimizer, as far as its memory goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerKind {
    /// Gradient descent.
    Sgd,
    /// Gradient descent with momentum.
    Momentum,
    /// Adam.
    Adam,
    /// Adam with decoupled weight decay.
    AdamW,
    /// Adam with a rate for each layer.
    Lamb,
}

impl OptimizerKind {
    /// Number of tensors that it keeps of the size of every trainable parameter: the velocity, or two
    /// moments.
    pub fn copies(self) -> u64 {
        match self {
            Self::Sgd => 0,
            Self::Momentum => 1,
            Self::Adam | Self::AdamW | Self::Lamb => 2,
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests;
