//! What a backend must fuse, and the table of those that do.

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::{StepOutput, StepRule, StepTensors};
use crate::grad_stats::{self, GradParts};
use crate::local_learning::LocalBody;
use crate::registry::function_table;

/// A backend with fused bodies over all parameters or gradients of a module, and over layers that learn
/// without gradients; both work below autodiff, so no backend under it needs them.
///
/// Tensors are f32, but for parameters and gradients of the types that are [taken](Self::takes), of any
/// shape and layout, and their shapes have been checked; those of one call may lie on several devices.
/// A step and statistics are of at least one tensor, and all of these have elements.
pub trait FusedSteps: Backend {
    /// The types that [`optim_step`](Self::optim_step) takes a parameter and its gradient in, with f32
    /// to remember of it, and [`grad_stats`](Self::grad_stats) a gradient; f32 among them.
    fn takes(found: DType) -> bool {
        found == DType::F32
    }

    /// See [`optim_step`](crate::optim_step()): the order is kept, `time` is one more, and the state
    /// has all tensors of the rule. [`StepRule::factors`] says what to multiply with. Memory is
    /// overwritten only where nothing else holds it.
    fn optim_step(
        of: Vec<StepTensors<FloatTensor<Self>>>,
        rule: &StepRule,
        learning_rate: f64,
    ) -> Vec<StepOutput<FloatTensor<Self>>>;

    /// See [`grad_stats`](crate::grad_stats()): every gradient times `factor`, untouched if that is
    /// one, and the sum of the squares of all elements of the result, with one read-back. The sum is
    /// finite if all elements are, infinite if some are, and NaN if one is NaN.
    fn grad_stats(gradients: Vec<FloatTensor<Self>>, factor: f64) -> (Vec<FloatTensor<Self>>, f64);

    /// See [`grad_stats_on_device`](crate::grad_stats_on_device); there is a gradient, and all have elements.
    /// Plain operations, unless a backend has better.
    fn grad_parts(gradients: Vec<FloatTensor<Self>>) -> GradParts<Self> {
        grad_stats::reference::grad_parts::<Self>(gradients)
    }

    /// How it goes through many ticks of local learning at once, if it has a body for that. On a host
    /// an operation costs next to nothing, so that tick after tick is as good.
    fn local_learning() -> Option<LocalBody<Self>> {
        None
    }
}

function_table! {
    StepTable of FusedSteps {
        pub takes: fn(DType) -> bool,
        pub optim_step: fn(Vec<StepTensors<FloatTensor<B>>>, &StepRule, f64)
            -> Vec<StepOutput<FloatTensor<B>>>,
        pub grad_stats: fn(Vec<FloatTensor<B>>, f64) -> (Vec<FloatTensor<B>>, f64),
        pub grad_parts: fn(Vec<FloatTensor<B>>) -> GradParts<B>,
        pub local_learning: fn() -> Option<LocalBody<B>>,
    }
}
