//! What a module takes of memory, counted from the module itself.

mod optimizer_kind;
mod parameters;

use burn::module::Module;
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

pub use optimizer_kind::OptimizerKind;
pub use parameters::ParameterProfile;

use super::MemoryFigure;

/// The parameters of a module, and what training them takes beside activations.
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
        Self { parameters: parameters::of::<B, M>(module) }
    }

    /// All tensors, running averages included.
    pub fn bytes(&self) -> MemoryFigure {
        self.sum(|_| true)
    }

    /// The tensors that training moves; their gradients take as much.
    pub fn trainable(&self) -> MemoryFigure {
        self.sum(|parameter| parameter.trainable)
    }

    /// The largest tensor that training moves.
    pub fn largest_trainable(&self) -> MemoryFigure {
        let trainable = self.parameters.iter().filter(|parameter| parameter.trainable);
        let largest = trainable.map(|parameter| parameter.bytes.0).max();
        MemoryFigure::exact(largest.unwrap_or(0))
    }

    /// Number of values that training moves.
    pub fn trainable_values(&self) -> u64 {
        let trainable = self.parameters.iter().filter(|parameter| parameter.trainable);
        trainable.map(|parameter| parameter.values).sum()
    }

    /// The trainable tensors in the module of this name, `head` or `encoder.blocks.3`.
    pub fn trainable_in(&self, module: &str) -> MemoryFigure {
        self.sum(|parameter| parameter.trainable && parameter.is_in(module))
    }

    /// What an optimizer remembers after its first step.
    pub fn optimizer_state(&self, optimizer: OptimizerKind) -> MemoryFigure {
        self.trainable().times(optimizer.copies())
    }

    fn sum(&self, counts: impl Fn(&ParameterProfile) -> bool) -> MemoryFigure {
        let counted = self.parameters.iter().filter(|parameter| counts(parameter));
        MemoryFigure::exact(counted.map(|parameter| parameter.bytes.0).sum())
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests;
