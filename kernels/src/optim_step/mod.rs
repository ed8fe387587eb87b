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
mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, TensorMetadata};

use crate::fallback::{all_f32, all_taken};
use crate::lists::{has_elements, in_parts};
use crate::registry::{self, Operation};

/// The update rule of an optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum StepRule {
    /// `p - lr * d` with `d = g`, or with what [`Momentum`] makes of `g`.
    Sgd { momentum: Option<Momentum>, weight_decay: WeightDecay },
    /// `p - lr * m' / (sqrt(v') + epsilon)` with the moments `m = beta_1 * m + (1 - beta_1) * g` and
    /// `v = beta_2 * v + (1 - beta_2) * g^2`, which start at zero, and
    /// `m' = m / (1 - beta_1^t)`, `v' = v / (1 - beta_2^t)`. Weight decay is L2 for Adam, decoupled for
    /// AdamW.
    Adam { beta_1: f64, beta_2: f64, epsilon: f64, weight_decay: WeightDecay },
    /// `p - lr * |p| / |u| * u` with `u = m' / (sqrt(v') + epsilon) + weight_decay * p`, the moments
    /// of Adam, and Euclidean norms over the whole tensor; the ratio is 1 where either norm is 0.
    Lamb { beta_1: f64, beta_2: f64, epsilon: f64, weight_decay: f64 },
}

/// A velocity `v = factor * v + (1 - dampening) * g` in place of the gradient; `v = g` at the first
/// step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Momentum {
    /// Share of the velocity that stays.
    pub factor: f64,
    /// Share of the gradient that is left out.
    pub dampening: f64,
    /// Nesterov's momentum: the direction is `g + factor * v`.
    pub nesterov: bool,
}

/// A pull towards zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WeightDecay {
    /// `g + strength * p` takes the place of `g`.
    L2(f64),
    /// `p * (1 - lr * strength)` takes the place of `p`, and the gradient stays as it is.
    Decoupled(f64),
}

impl WeightDecay {
    /// No pull.
    pub const NONE: Self = Self::L2(0.0);
}

impl StepRule {
    /// Tensors that the rule remembers of every parameter.
    pub fn remembers(&self) -> usize {
        match self {
            Self::Sgd { momentum, .. } => usize::from(momentum.is_some()),
            Self::Adam { .. } | Self::Lamb { .. } => 2,
        }
    }
}

/// The memory of a rule for a parameter.
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
    /// The memory of the rule for it.
    pub state: StepState<T>,
}

/// A parameter that has moved.
#[derive(Clone, Debug)]
pub struct StepOutput<T> {
    /// The parameter.
    pub parameter: T,
    /// The memory of the rule for it, with every tensor of the rule.
    pub state: StepState<T>,
}

impl<T: TensorMetadata> StepTensors<T> {
    fn tensors(&self) -> impl Iterator<Item = &T> {
        [&self.parameter, &self.gradient].into_iter().chain(self.state.tensors.iter().flatten())
    }

    /// True if fused bodies serve it that take parameters of these types.
    fn is_served(&self, takes: fn(DType) -> bool) -> bool {
        let [of, gradient] = [&self.parameter, &self.gradient].map(TensorMetadata::dtype);
        let remembered = self.state.tensors.iter().flatten().map(TensorMetadata::dtype);
        let name = "optim_step";
        all_taken(name, [of], takes)
            && all_taken(name, [gradient], |dtype| dtype == of)
            && all_f32(name, remembered)
    }

    /// The number of tensors that are remembered. Panics where tensors do not belong together.
    fn check(&self, rule: &StepRule) -> usize {
        let shape = self.parameter.shape();
        for other in self.tensors().map(TensorMetadata::shape) {
            assert!(
                other == shape,
                "a parameter of shape {:?} cannot step by a tensor of shape {:?}",
                shape.to_vec(),
                other.to_vec()
            );
        }
        let (count, tensors) = (rule.remembers(), self.state.tensors.iter().flatten().count());
        let others = self.state.tensors[count..].iter().any(Option::is_some);
        assert!(
            (tensors == 0 || tensors == count) && !others,
            "the rule remembers {count} tensors of a parameter, the state has {tensors}"
        );
        tensors
    }
}

/// One step of all parameters, below autodiff.
///
/// Tensors are f32, but for parameters and gradients of the types that fused bodies of the backend take. They have
/// any layout and shapes that fit; those of one call may lie on several devices. There is at least one, and all have
/// elements. The order is kept, `time` is one more, and the state has all tensors of the rule.
/// [`StepRule::factors`] has the factors. Memory is overwritten only where nothing else holds it.
pub(crate) struct StepCall {
    rule: StepRule,
    learning_rate: f64,
}

impl Operation for StepCall {
    type Operands<B: Backend> = Vec<StepTensors<FloatTensor<B>>>;
    type Results<B: Backend> = Vec<StepOutput<FloatTensor<B>>>;
}

/// Updates every parameter by one step of `rule`; the result is in the order of `of`.
///
/// # Conventions
/// Equal to PyTorch's optimizers of the same names, with `epsilon` added to the square root of the
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
    let Some(body) = registry::body::<B, StepCall>() else {
        return of.into_iter().map(plain).collect();
    };
    let types = registry::taken::<B>();
    let takes =
        |one: &StepTensors<FloatTensor<B>>| has_elements(&one.parameter) && one.is_served(types);
    in_parts(of, takes, |of| body(of, &StepCall { rule: *rule, learning_rate }), plain)
}

/// The step of a parameter without elements.
fn passed<B: Backend>(
    of: StepTensors<FloatTensor<B>>,
    rule: &StepRule,
) -> StepOutput<FloatTensor<B>> {
    let StepTensors { parameter, state: StepState { time, mut tensors }, .. } = of;
    let (device, dtype) = (B::float_device(&parameter), reference::working(parameter.dtype()));
    for tensor in tensors.iter_mut().take(rule.remembers()) {
        tensor.get_or_insert_with(|| B::float_empty(parameter.shape(), &device, dtype.into()));
    }
    StepOutput { parameter, state: StepState { time: time + 1, tensors } }
}
