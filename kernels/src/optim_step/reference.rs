//! The step in plain Burn operations.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorMetadata};

use super::factors::{Decay, Factors, Moments, Velocity};
use super::{StepOutput, StepRule, StepState, StepTensors};
use crate::host::{unwrap, wrap};

/// See [`optim_step`](crate::optim_step()).
pub fn optim_step<B: Backend>(
    of: StepTensors<FloatTensor<B>>,
    rule: &StepRule,
    learning_rate: f64,
) -> StepOutput<FloatTensor<B>> {
    let StepTensors { parameter, gradient, state } = of;
    let (shape, dtype) = (parameter.shape(), parameter.dtype());
    let working = working(dtype);
    let flat = |tensor: FloatTensor<B>| {
        let elements = [shape.num_elements()];
        wrap::<B, 1>(B::float_reshape(tensor, elements.into())).cast(working)
    };
    let (p, g) = (flat(parameter), flat(gradient));
    let mut old = state.tensors.map(|tensor| tensor.map(flat).unwrap_or_else(|| p.zeros_like()));
    let p = match rule.factors(state.time, learning_rate) {
        Factors::Sgd { decay, velocity, rate } => {
            let g = pulled(g, &p, &decay);
            let direction = match velocity {
                Some(by) => follow(g, &mut old[0], &by),
                None => g,
            };
            decayed(p, &decay) - direction.mul_scalar(rate)
        }
        Factors::Adam { decay, moments, rate } => {
            let r = ratio(pulled(g, &p, &decay), &mut old, &moments);
            decayed(p, &decay) - r.mul_scalar(rate)
        }
        Factors::Lamb { pull, moments, rate } => {
            let r = ratio(g, &mut old, &moments);
            let u = if pull == 0.0 { r } else { r + p.clone().mul_scalar(pull) };
            let trust = trust(p.clone(), u.clone());
            p - u * trust.mul_scalar(rate)
        }
    };
    let shaped = |tensor: Tensor<B, 1>| B::float_reshape(unwrap(tensor), shape.clone());
    let mut old = old.into_iter().map(shaped);
    let tensors = [0, 1].map(|i| old.next().filter(|_| i < rule.remembers()));
    let state = StepState { time: state.time + 1, tensors };
    StepOutput { parameter: shaped(p.cast(dtype)), state }
}

/// The type of what is remembered of a parameter of type `dtype`.
pub(super) fn working(dtype: DType) -> DType {
    match dtype {
        // A second moment of small gradients is zero in f16, and one that grows slowly stands still
        // in bf16.
        DType::F16 | DType::BF16 => DType::F32,
        dtype => dtype,
    }
}

fn pulled<B: Backend>(g: Tensor<B, 1>, p: &Tensor<B, 1>, decay: &Decay) -> Tensor<B, 1> {
    if decay.l2 == 0.0 { g } else { g + p.clone().mul_scalar(decay.l2) }
}

fn decayed<B: Backend>(p: Tensor<B, 1>, decay: &Decay) -> Tensor<B, 1> {
    if decay.keep == 1.0 { p } else { p.mul_scalar(decay.keep) }
}

/// The direction; `velocity` becomes the new one.
fn follow<B: Backend>(g: Tensor<B, 1>, velocity: &mut Tensor<B, 1>, by: &Velocity) -> Tensor<B, 1> {
    let new = velocity.clone().mul_scalar(by.old) + g.clone().mul_scalar(by.new);
    *velocity = new.clone();
    if by.now == 0.0 { new } else { new.mul_scalar(by.ahead) + g.mul_scalar(by.now) }
}

/// The ratio of the moments; `moments` become the new ones.
fn ratio<B: Backend>(
    g: Tensor<B, 1>,
    moments: &mut [Tensor<B, 1>; 2],
    by: &Moments,
) -> Tensor<B, 1> {
    let [m, v] = moments.clone();
    let square = g.clone() * g.clone();
    let m = m.mul_scalar(by.beta_1) + g.mul_scalar(1.0 - by.beta_1);
    let v = v.mul_scalar(by.beta_2) + square.mul_scalar(1.0 - by.beta_2);
    *moments = [m.clone(), v.clone()];
    m.mul_scalar(by.first) / (v.sqrt().mul_scalar(by.root).add_scalar(by.epsilon))
}

/// `|p| / |u|`, or 1 where either is not positive.
fn trust<B: Backend>(p: Tensor<B, 1>, u: Tensor<B, 1>) -> Tensor<B, 1> {
    let norm = |x: Tensor<B, 1>| (x.clone() * x).sum().sqrt();
    let (p, u) = (norm(p), norm(u));
    let defined = p.clone().greater_elem(0).bool_and(u.clone().greater_elem(0));
    (p / u).mask_fill(defined.bool_not(), 1)
}
