//! The step on a device: one launch for parameters of one type that move by the same factors, which
//! writes where they lie; of LAMB two for those whose lengths divide alike.
//!
//! Parameter and gradient are f32, f16 or bf16; what is remembered and all arithmetic are f32.

mod adam;
mod lamb;
mod sgd;

use burn::tensor::DType;
use burn::tensor::ops::FloatTensor;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::client::ComputeClient;
use cubecl::prelude::*;

use super::factors::Factors;
use super::{StepCall, StepOutput, StepRule, StepState, StepTensors};
use crate::cube::{Vectors, arrays, empty, into_contiguous, most_tensors, owned};
use crate::lists::grouped;
use crate::registry::Runs;

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> Runs<StepCall>
    for CubeBackend<R, F, I, BT>
{
    fn run(
        parameters: Vec<StepTensors<FloatTensor<Self>>>,
        &StepCall { ref rule, learning_rate }: &StepCall,
    ) -> Vec<StepOutput<FloatTensor<Self>>> {
        let moving: Vec<_> = parameters.into_iter().map(|one| Moving::new(one, rule)).collect();
        // Parameters without a gradient at some step are behind the others.
        let of_a_kind = |one: &&Moving<R>| {
            let factors = rule.factors(one.time, learning_rate);
            (one.p.device.clone(), one.p.dtype, one.fresh, factors)
        };
        for ((.., factors), of) in grouped(&moving, of_a_kind) {
            let of = Group(&of);
            match factors {
                Factors::Sgd { decay, velocity, rate } => sgd::step(&of, &decay, velocity, rate),
                Factors::Adam { decay, moments, rate } => adam::step(&of, &decay, &moments, rate),
                Factors::Lamb { pull, moments, rate } => lamb::step(&of, pull, &moments, rate),
            }
        }
        moving.into_iter().map(Moving::stepped).collect()
    }
}

/// A parameter that may be written to, with all it takes to move it.
struct Moving<R: CubeRuntime> {
    p: CubeTensor<R>,
    g: CubeTensor<R>,
    /// The tensors that the rule remembers, yet to be written if `fresh`.
    state: Vec<CubeTensor<R>>,
    /// True if the state stands for zeros.
    fresh: bool,
    /// Steps made before.
    time: usize,
}

impl<R: CubeRuntime> Moving<R> {
    fn new(of: StepTensors<CubeTensor<R>>, rule: &StepRule) -> Self {
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
        Self { p, g: into_contiguous(gradient), state, fresh, time }
    }

    fn length(&self) -> usize {
        self.p.meta.num_elements()
    }

    fn stepped(self) -> StepOutput<CubeTensor<R>> {
        let mut state = self.state.into_iter();
        let tensors = [state.next(), state.next()];
        StepOutput { parameter: self.p, state: StepState { time: self.time + 1, tensors } }
    }
}

/// Parameters of one device and type, at least one, that move by the same factors; either all of them
/// are fresh, or none.
struct Group<'a, R: CubeRuntime>(&'a [&'a Moving<R>]);

impl<R: CubeRuntime> Group<'_, R> {
    fn client(&self) -> &ComputeClient<R> {
        &self.0[0].p.client
    }

    /// The smallest number of groups for launches that bind so many arrays of a parameter, and
    /// `shared` ones besides.
    fn batches(&self, arrays: usize, shared: usize) -> impl Iterator<Item = Group<'_, R>> {
        self.0.chunks(most_tensors(self.client(), arrays, shared)).map(Group)
    }

    /// The launch of a unit a vector.
    fn vectors(&self) -> Vectors {
        let lengths: Vec<_> = self.0.iter().map(|one| one.length()).collect();
        // Of the widest elements, those of the state.
        Vectors::of(self.client(), &lengths, size_of::<f32>())
    }

    fn fresh(&self) -> bool {
        self.0[0].fresh
    }

    fn dtype(&self) -> StorageType {
        self.0[0].p.dtype.into()
    }

    fn parameters<E: CubePrimitive>(&self) -> SequenceArg<R, Array<E>> {
        arrays(self.0.iter().map(|one| &one.p))
    }

    fn gradients<E: CubePrimitive>(&self) -> SequenceArg<R, Array<E>> {
        arrays(self.0.iter().map(|one| &one.g))
    }

    fn state<E: CubePrimitive>(&self, place: usize) -> SequenceArg<R, Array<E>> {
        arrays(self.0.iter().map(|one| &one.state[place]))
    }
}
