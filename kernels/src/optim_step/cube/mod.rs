//! The step on a device: one kernel a parameter, which writes where the parameter lies.
//!
//! Parameter and gradient are f32, f16 or bf16; what is remembered and all arithmetic are f32.

mod adam;
mod lamb;
mod sgd;

use burn::tensor::DType;
use burn::tensor::ops::FloatTensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::prelude::*;

use super::factors::Factors;
use super::{FusedSteps, StepRule, StepState, StepTensors, Stepped};
use crate::cube::{elementwise, empty, owned, vector_size};
use crate::grad_stats;
use crate::layers::goes_into_f32;

impl<R, F, I, BT> FusedSteps for CubeBackend<R, F, I, BT>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    fn takes(found: DType) -> bool {
        goes_into_f32(found)
    }

    fn optim_step(
        of: Vec<StepTensors<FloatTensor<Self>>>,
        rule: &StepRule,
        learning_rate: f64,
    ) -> Vec<Stepped<FloatTensor<Self>>> {
        of.into_iter().map(|one| step(one, rule, learning_rate)).collect()
    }

    fn grad_stats(gradients: Vec<FloatTensor<Self>>, factor: f64) -> (Vec<FloatTensor<Self>>, f64) {
        grad_stats::cube::grad_stats(gradients, factor)
    }
}

/// A parameter that may be written to, with all it takes to move it.
struct Moving<R: CubeRuntime> {
    p: CubeTensor<R>,
    g: CubeTensor<R>,
    /// As many as the rule remembers, yet to be written if `fresh`.
    state: Vec<CubeTensor<R>>,
    /// Whether the state stands for zeros.
    fresh: bool,
}

impl<R: CubeRuntime> Moving<R> {
    /// Vectors in the parameter, and their width.
    fn vectors(&self) -> [usize; 2] {
        let length = self.p.meta.num_elements();
        // Of the widest elements, those of the state.
        let width = vector_size(&self.p.client, length, size_of::<f32>());
        [length / width, width]
    }

    fn dtype(&self) -> StorageType {
        self.p.dtype.into()
    }

    fn state(&self, place: usize) -> ArrayArg<R> {
        self.state[place].clone().into_array_arg()
    }

    /// The launch of a unit a vector.
    fn elementwise(&self, vectors: usize) -> (CubeCount, CubeDim) {
        elementwise(&self.p.client, vectors)
    }
}

fn step<R: CubeRuntime>(
    of: StepTensors<CubeTensor<R>>,
    rule: &StepRule,
    learning_rate: f64,
) -> Stepped<CubeTensor<R>> {
    let StepTensors { parameter, gradient, state: StepState { time, tensors } } = of;
    let p = owned(parameter);
    let old: Vec<_> = tensors.into_iter().flatten().map(owned).collect();
    let fresh = old.is_empty();
    let state = match fresh {
        true => {
            let one = |_| empty(&p, p.meta.shape().clone(), DType::F32);
            (0..rule.remembers()).map(one).collect()
        }
        false => old,
    };
    let moving = Moving { p, g: into_contiguous(gradient), state, fresh };
    if moving.p.meta.num_elements() > 0 {
        match rule.factors(time, learning_rate) {
            Factors::Sgd { decay, velocity, rate } => sgd::step(&moving, &decay, velocity, rate),
            Factors::Adam { decay, moments, rate } => adam::step(&moving, &decay, &moments, rate),
            Factors::Lamb { pull, moments, rate } => lamb::step(&moving, pull, &moments, rate),
        }
    }
    let Moving { p, state, .. } = moving;
    let mut state = state.into_iter();
    let tensors = [state.next(), state.next()];
    Stepped { parameter: p, state: StepState { time: time + 1, tensors } }
}
