//! The step of every host backend, over slices of memory.

use std::borrow::Cow;

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, TensorMetadata};
use fewshot_simd::instruction_set::InstructionSet;
use rayon::prelude::*;

use super::factors::Factors;
use super::{StepCall, StepOutput, StepRule, StepState, StepTensors};
use crate::environment::chosen;
use crate::host::{HostBackend, elements, into_elements, write_shape};
use crate::registry::Runs;

/// Floats of one slice in a chunk: a task of a thread, and a summand of a norm.
const CHUNK: usize = 1 << 14;

/// Floats over all parameters from which it pays to wake another thread.
const PARALLEL: usize = 1 << 18;

impl<B: HostBackend> Runs<StepCall> for B {
    fn run(
        parameters: Vec<StepTensors<FloatTensor<B>>>,
        &StepCall { ref rule, learning_rate }: &StepCall,
    ) -> Vec<StepOutput<FloatTensor<B>>> {
        let (gradients, mut moving): (Vec<_>, Vec<_>) =
            parameters.into_iter().map(|one| Moving::<B>::new(one, rule)).unzip();
        let gradients: Vec<Cow<'_, [f32]>> = gradients.iter().map(elements::<B>).collect();
        let parameters = moving.iter_mut().zip(&gradients).map(|(one, gradient)| Elements {
            factors: rule.factors(one.time, learning_rate),
            p: &mut one.parameter,
            g: gradient,
            state: one.state.each_mut().map(Vec::as_mut_slice),
        });
        step(chosen(), parameters.collect());
        moving.into_iter().map(|one| one.stepped(rule)).collect()
    }
}

/// A parameter and its state in memory of their own.
struct Moving<B: HostBackend> {
    shape: Shape,
    device: B::Device,
    time: usize,
    parameter: Vec<f32>,
    state: [Vec<f32>; 2],
}

impl<B: HostBackend> Moving<B> {
    /// The gradient beside it.
    fn new(of: StepTensors<FloatTensor<B>>, rule: &StepRule) -> (FloatTensor<B>, Self) {
        let StepTensors { parameter, gradient, state: StepState { time, tensors } } = of;
        let (shape, device) = (parameter.shape(), B::float_device(&parameter));
        let mut tensors = tensors.into_iter();
        let state = [0, 1].map(|place| match tensors.next().flatten() {
            Some(tensor) => into_elements::<B>(tensor),
            None if place < rule.remembers() => vec![0.0; shape.num_elements()],
            None => Vec::new(),
        });
        (gradient, Self { shape, device, time, parameter: into_elements::<B>(parameter), state })
    }

    fn stepped(self, rule: &StepRule) -> StepOutput<FloatTensor<B>> {
        let Self { shape, device, time, parameter, state } = self;
        let tensor = |elements| write_shape::<B>(elements, shape.clone(), &device);
        let mut remembered = state.into_iter().take(rule.remembers()).map(tensor);
        let tensors = [remembered.next(), remembered.next()];
        StepOutput { parameter: tensor(parameter), state: StepState { time: time + 1, tensors } }
    }
}

/// A parameter, its gradient, and the tensors that its rule remembers; the others are empty.
struct Elements<'a> {
    factors: Factors,
    p: &'a mut [f32],
    g: &'a [f32],
    state: [&'a mut [f32]; 2],
}

/// Moves all parameters in place.
///
/// Chunks do not depend on the number of threads, so neither does the result.
fn step(body: &dyn InstructionSet, of: Vec<Elements<'_>>) {
    let mut squares = vec![[0.0; 2]; of.len()];
    let mut chunks = Vec::new();
    for (tensor, Elements { factors, p, g, state }) in of.into_iter().enumerate() {
        let mut states = state.map(|state| state.chunks_mut(CHUNK));
        for (p, g) in p.chunks_mut(CHUNK).zip(g.chunks(CHUNK)) {
            let state = states.each_mut().map(|state| state.next().unwrap_or_default());
            let of = Elements { factors, p, g, state };
            chunks.push(Chunk { tensor, of, squares: [0.0; 2] });
        }
    }
    for_each(&mut chunks, |chunk| chunk.run(body));
    if !chunks.iter().any(Chunk::is_lamb) {
        return;
    }
    for chunk in &chunks {
        let sums = &mut squares[chunk.tensor];
        *sums = [sums[0] + chunk.squares[0], sums[1] + chunk.squares[1]];
    }
    for_each(&mut chunks, |chunk| chunk.apply_lamb(body, squares[chunk.tensor]));
}

fn for_each<'a>(chunks: &mut [Chunk<'a>], run: impl Fn(&mut Chunk<'a>) + Send + Sync) {
    if chunks.iter().map(|chunk| chunk.of.p.len()).sum::<usize>() < PARALLEL {
        chunks.iter_mut().for_each(run);
    } else {
        chunks.par_iter_mut().for_each(run);
    }
}

struct Chunk<'a> {
    tensor: usize,
    of: Elements<'a>,
    /// Sums of squares of the parameter and of its direction, for rules with a norm.
    squares: [f64; 2],
}

impl Chunk<'_> {
    fn run(&mut self, body: &dyn InstructionSet) {
        let Elements { factors, p, g, state: [first, second] } = &mut self.of;
        match *factors {
            Factors::Sgd { decay, velocity: None, rate } => body.sgd(decay, rate, g, p),
            Factors::Sgd { decay, velocity: Some(by), rate } => {
                body.momentum(decay, by, rate, g, p, first);
            }
            Factors::Adam { decay, moments, rate } => {
                body.adam(decay, moments, rate, g, p, [first, second]);
            }
            Factors::Lamb { pull, moments, .. } => {
                body.lamb_direction(moments, pull, [g, p], [first, second], &mut self.squares);
            }
        }
    }

    fn is_lamb(&self) -> bool {
        matches!(self.of.factors, Factors::Lamb { .. })
    }

    /// Applies the direction of LAMB, given the sums of squares over the whole parameter.
    fn apply_lamb(&mut self, body: &dyn InstructionSet, [parameter, direction]: [f64; 2]) {
        let Factors::Lamb { pull, moments, rate } = self.of.factors else { return };
        let defined = parameter > 0.0 && direction > 0.0;
        let trust = if defined { (parameter / direction).sqrt() } else { 1.0 };
        let [m, v] = &self.of.state;
        body.lamb_apply(moments, pull, rate * trust, [m, v], self.of.p);
    }
}

#[cfg(test)]
mod tests {
    use fewshot_simd::instruction_set::bodies;

    use super::super::{Momentum, WeightDecay};
    use super::*;

    /// The value around every slice, which must stand there afterwards.
    const GUARD: f32 = 77.5;

    fn values(count: usize, seed: usize) -> Vec<f32> {
        let value = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1000.0 - 1.0;
        let inside = (0..count).map(value);
        [GUARD; 16].into_iter().chain(inside).chain([GUARD; 16]).collect()
    }

    /// All slices after a step over parameters of these sizes, each without its first `cut` elements.
    fn stepped(
        body: &dyn InstructionSet,
        rule: &StepRule,
        sizes: &[usize],
        cut: usize,
    ) -> Vec<Vec<f32>> {
        let set = |seed: usize| sizes.iter().map(move |&size| values(size, seed)).collect();
        let [mut p, g, mut first, mut second]: [Vec<Vec<f32>>; 4] = [1, 2, 3, 4].map(set);
        for second in second.iter_mut().flatten() {
            // Second moments are squares; the guard is one too.
            *second = second.abs();
        }
        let inside = |slice: &mut [f32], remembered: bool| {
            if remembered { 16 + cut..slice.len() - 16 } else { 16..16 }
        };
        let states = first.iter_mut().zip(&mut second);
        let of = p.iter_mut().zip(&g).zip(states).map(|((p, g), (first, second))| {
            let end = p.len() - 16;
            let ranges =
                [inside(first, rule.remembers() > 0), inside(second, rule.remembers() > 1)];
            Elements {
                factors: rule.factors(3, 0.1),
                p: &mut p[16 + cut..end],
                g: &g[16 + cut..end],
                state: [&mut first[ranges[0].clone()], &mut second[ranges[1].clone()]],
            }
        });
        step(body, of.collect());
        [p, first, second].concat()
    }

    fn rules() -> [StepRule; 5] {
        let momentum = Some(Momentum { factor: 0.9, dampening: 0.1, nesterov: true });
        let adam = |weight_decay| StepRule::Adam {
            beta_1: 0.9,
            beta_2: 0.99,
            epsilon: 1e-8,
            weight_decay,
        };
        [
            StepRule::Sgd { momentum: None, weight_decay: WeightDecay::L2(0.1) },
            StepRule::Sgd { momentum, weight_decay: WeightDecay::NONE },
            adam(WeightDecay::L2(0.1)),
            adam(WeightDecay::Decoupled(0.1)),
            StepRule::Lamb { beta_1: 0.9, beta_2: 0.99, epsilon: 1e-6, weight_decay: 0.1 },
        ]
    }

    #[test]
    fn all_bodies_agree_and_write_nowhere_else() {
        let sizes = [0, 1, 3, 15, 16, 17, 31, 33, 255, 257, CHUNK, CHUNK + 1, PARALLEL + 5];
        for rule in rules() {
            let bodies = bodies();
            let (judge, others) = bodies.split_last().unwrap();
            let expected = stepped(*judge, &rule, &sizes, 0);
            for slice in &expected {
                let around = slice[..16].iter().chain(&slice[slice.len() - 16..]);
                assert!(around.clone().all(|&value| value == GUARD), "{rule:?}");
            }
            for body in others {
                let actual = stepped(*body, &rule, &sizes, 0);
                for (actual, expected) in actual.iter().flatten().zip(expected.iter().flatten()) {
                    let near = (actual - expected).abs() <= 2e-6 * (1.0 + expected.abs());
                    assert!(near, "{} {rule:?}: {actual}, not {expected}", body.name());
                }
            }
        }
    }

    #[test]
    fn an_element_does_not_depend_on_its_place() {
        for body in bodies() {
            for rule in &rules()[..4] {
                let whole = &stepped(body, rule, &[100], 0)[0];
                for cut in [1, 7, 16, 99] {
                    let part = &stepped(body, rule, &[100], cut)[0];
                    assert_eq!(
                        part[16 + cut..116],
                        whole[16 + cut..116],
                        "{} {rule:?}",
                        body.name()
                    );
                }
            }
        }
    }
}
