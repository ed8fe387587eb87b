//! The step on a device: one kernel a parameter, which writes where the parameter lies.

mod adam;
mod lamb;
mod sgd;

use burn::tensor::ops::FloatTensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::prelude::*;

use super::factors::Factors;
use super::{FusedSteps, StepRule, StepState, StepTensors, Stepped};
use crate::cube::{elementwise, empty_like, owned, vector_size};
use crate::grad_stats;

impl<R, F, I, BT> FusedSteps for CubeBackend<R, F, I, BT>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
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
        let width = vector_size(&self.p.client, length, self.p.elem_size());
        [length / width, width]
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
        true => (0..rule.remembers()).map(|_| empty_like(&p)).collect(),
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
