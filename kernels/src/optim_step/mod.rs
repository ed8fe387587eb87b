//! One step of an optimizer, over all parameters at once.
//!
//! A parameter `p` with gradient `g` is updated by a [`StepRule`]; `t` is the number of the step, from 1,
//! and every parameter has its own.
//!
//! # Source
//! Adam: Kingma and Ba, 2015, arXiv:1412.6980. Decoupled weight decay: Loshchilov and Hutter, 2019,
//! arXiv:1711.05101. LAMB: You et al., 2020, arXiv:1904.00962. Nesterov's momentum: Sutskever et
//! al., 2013.

mod cpu;
#[cfg(feature = "cube")]
#[allow(clippy::too_many_arguments, clippy::assign_op_pattern)]
mod cube;
pub mod factors;
#[cfg(feature = "fusion")]
mod fusion;
mod host;
pub mod reference;
mod rule;
mod table;

pub use rule::{Momentum, StepRule, WeightDecay};
pub use table::FusedSteps;
pub(crate) use table::StepTable;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, TensorMetadata};

use crate::fallback::{all_f32, all_taken};
use crate::lists::{has_elements, in_parts};
use crate::registry;

/// What a rule remembers of a parameter.
#[derive(Clone, Debug)]
pub struct StepState<T> {
    /// Steps that the parameter has made; none where its rule remembers tensors and there are none.
    pub time: usize,
    /// The velocity; or the first and second moments. As many as [`StepRule::remembers`], or none
    /// before the first step.
    pub tensors: [Option<T>; 2],
}

impl<T> Default for StepState<T> {
    fn default() -> Self {
        Self { time: 0, tensors: [None, None] }
    }
}

/// A parameter about to move. All tensors have one shape, of any rank, and lie on one device.
#[derive(Clone, Debug)]
pub struct StepTensors<T> {
    /// The parameter.
    pub parameter: T,
    /// Its gradient.
    pub gradient: T,
    /// What is remembered of it.
    pub state: StepState<T>,
}

/// A parameter that has moved.
#[derive(Clone, Debug)]
pub struct StepOutput<T> {
    /// The parameter.
    pub parameter: T,
    /// What to remember of it, with everything that the rule needs.
    pub state: StepState<T>,
}

impl<T: TensorMetadata> StepTensors<T> {
    fn tensors(&self) -> impl Iterator<Item = &T> {
        [&self.parameter, &self.gradient].into_iter().chain(self.state.tensors.iter().flatten())
    }

    /// Whether fused bodies serve it that take parameters of these types.
    fn is_served(&self, takes: fn(DType) -> bool) -> bool {
        let [of, gradient] = [&self.parameter, &self.gradient].map(TensorMetadata::dtype);
        let remembered = self.state.tensors.iter().flatten().map(TensorMetadata::dtype);
        let name = "optim_step";
        all_taken(name, [of], takes)
            && all_taken(name, [gradient], |found| found == of)
            && all_f32(name, remembered)
    }

    /// How many tensors are remembered. Panics where tensors do not belong together.
    fn check(&self, rule: &StepRule) -> usize {
        let wanted = self.parameter.shape();
        for found in self.tensors().map(TensorMetadata::shape) {
            assert!(
                found == wanted,
                "a parameter of shape {:?} cannot step by a tensor of shape {:?}",
                wanted.to_vec(),
                found.to_vec()
            );
        }
        let (wanted, found) = (rule.remembers(), self.state.tensors.iter().flatten().count());
        let others = self.state.tensors[wanted..].iter().any(Option::is_some);
        assert!(
            (found == 0 || found == wanted) && !others,
            "the rule remembers {wanted} tensors of a parameter, the state has {found}"
        );
        found
    }
}

/// Updates every parameter by one step of `rule`; the result is in the order of `of`.
///
/// # Conventions
/// As PyTorch's optimizers of the same names, with `epsilon` added to the square root of the
/// corrected second moment. A fused body writes to the memory of a parameter and its state where
/// nothing else holds it, so pass on the only copy. A parameter in f16 or bf16 is updated in f32, and
/// its state is f32.
pub fn optim_step<B: Backend>(
    mut of: Vec<StepTensors<FloatTensor<B>>>,
    rule: &StepRule,
    learning_rate: f64,
) -> Vec<StepOutput<FloatTensor<B>>> {
    for one in &mut of {
        let remembered = one.check(rule);
        if remembered < rule.remembers() {
            one.state.time = 0;
        }
    }
    let plain = |one: StepTensors<FloatTensor<B>>| match has_elements(&one.parameter) {
        true => reference::optim_step::<B>(one, rule, learning_rate),
        false => passed::<B>(one, rule),
    };
    let Some(table) = registry::table::<StepTable<B>>() else {
        return of.into_iter().map(plain).collect();
    };
    let takes = |one: &StepTensors<FloatTensor<B>>| {
        has_elements(&one.parameter) && one.is_served(table.takes)
    };
    in_parts(of, takes, |of| (table.optim_step)(of, rule, learning_rate), plain)
}

/// The step of a parameter without elements.
fn passed<B: Backend>(
    of: StepTensors<FloatTensor<B>>,
    rule: &StepRule,
) -> StepOutput<FloatTensor<B>> {
    let StepTensors { parameter, state: StepState { time, tensors }, .. } = of;
    let (device, dtype) = (B::float_device(&parameter), reference::working(parameter.dtype()));
    let mut place = 0..;
    let tensors = tensors.map(|tensor| {
        let remembered = place.next().is_some_and(|place| place < rule.remembers());
        let new = || B::float_empty(parameter.shape(), &device, dtype.into());
        tensor.or_else(|| remembered.then(new))
    });
    StepOutput { parameter, state: StepState { time: time + 1, tensors } }
}
