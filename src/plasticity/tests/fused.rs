//! Whole sequences on an accelerator, against tick after tick in plain operations.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::with_reference;

use super::{assert_close, on_accelerators, on_backend, random, read};
use crate::plasticity::{
    Activation, Aggregate, Bcm, BcmForm, Covariance, Hebb, HierarchyConfig, Oja, PlasticityError,
    PlasticityRule, Rate, Running, Sanger, Subspace, TemporalHierarchy,
};

on_accelerators! {
    every_rule_learns_as_tick_after_tick
    every_window_and_activation_learns_as_tick_after_tick
    sizes_that_are_even_and_odd_learn_as_tick_after_tick
    a_sequence_in_parts_is_the_sequence_in_any_way
    bounds_are_those_of_tick_after_tick
    what_cannot_be_gone_through_is_an_error
}

/// Settings of a hierarchy, and the number and length of its sequences.
#[derive(Clone, Debug)]
struct Case {
    levels: Vec<usize>,
    periods: Vec<usize>,
    aggregate: Aggregate,
    activation: Activation,
    top_down: f64,
    relative: Option<f64>,
    sequences: usize,
    ticks: usize,
}

fn case() -> Case {
    Case {
        levels: vec![5, 7, 4, 3],
        periods: vec![1, 2, 6],
        aggregate: Aggregate::Mean,
        activation: Activation::Tanh,
        top_down: 0.3,
        relative: Some(5.0),
        sequences: 3,
        ticks: 9,
    }
}

impl Case {
    fn hierarchy<B: Backend>(&self) -> TemporalHierarchy<B> {
        let device = Default::default();
        B::seed(&device, 1);
        HierarchyConfig::new(self.levels.clone(), self.periods.clone())
            .with_aggregate(self.aggregate)
            .with_activation(self.activation)
            .with_top_down(self.top_down)
            .init(&device)
            .unwrap()
    }

    fn xs<B: Backend>(&self) -> Tensor<B, 3> {
        random(2, [self.sequences, self.ticks, self.levels[0]])
    }

    fn start<B: Backend, R: PlasticityRule<B>>(
        &self,
        hierarchy: &TemporalHierarchy<B>,
        rule: R,
    ) -> Running<B, R> {
        let running = hierarchy.start(rule, Rate::Fixed(0.05));
        match self.relative {
            Some(tau) => running.with_relative_rates(tau).unwrap(),
            None => running,
        }
    }

    /// Fused equals plain in weights, firings, held outputs and all that shows later.
    fn check<B: Backend, R: PlasticityRule<B>>(&self, rule: R) {
        let what = format!("{rule:?}, {self:?}");
        let (hierarchy, xs) = (self.hierarchy::<B>(), self.xs::<B>());
        let (fused, fired) = self.start(&hierarchy, rule.clone()).run(xs.clone()).unwrap();
        let (plain, expected) =
            with_reference(|| self.start(&hierarchy, rule).run(xs.clone()).unwrap());
        assert!(fused.memory.is_some() && plain.memory.is_none(), "{what}");
        assert_same(&what, &fused, &plain);
        assert_eq!(fired.len(), expected.len(), "{what}");
        for (actual, expected) in fired.into_iter().zip(expected) {
            assert_eq!(
                (actual.period, actual.outputs.dims()),
                (expected.period, expected.outputs.dims())
            );
            assert_near(&what, &read(actual.outputs), &read(expected.outputs));
        }
        assert_ne!(weights(&fused), weights(&self.start(&hierarchy, Hebb::new())), "{what}");
        // What is remembered shows in what comes next, plain operations going on from either.
        let [fused, plain] =
            [fused, plain].map(|running| with_reference(|| running.learn(xs.clone()).unwrap()));
        assert_same(&what, &fused, &plain);
    }
}

fn weights<B: Backend, R: PlasticityRule<B>>(running: &Running<B, R>) -> Vec<f32> {
    let layers = running.hierarchy().layers().iter();
    layers.flat_map(|layer| read(layer.weight.val())).collect()
}

/// Relative to the largest number.
fn assert_near(what: &str, actual: &[f32], expected: &[f32]) {
    let largest = expected.iter().fold(1e-3, |largest, value| value.abs().max(largest));
    assert_close(what, actual, expected, 2e-5 * largest);
}

fn assert_same<B: Backend, R: PlasticityRule<B>>(
    what: &str,
    actual: &Running<B, R>,
    expected: &Running<B, R>,
) {
    assert_eq!(actual.tick(), expected.tick());
    assert_near(what, &weights(actual), &weights(expected));
    for layer in 0..actual.hierarchy().layers().len() {
        let [actual, expected] =
            [actual, expected].map(|running| read(running.output(layer).unwrap()));
        assert_near(what, &actual, &expected);
    }
}

fn with_every_rule<B: Backend>(case: &Case) {
    case.check::<B, _>(Hebb::new().with_decay(0.3).unwrap());
    case.check::<B, _>(Covariance::new(4.0).unwrap().with_decay(0.1).unwrap());
    case.check::<B, _>(Oja);
    case.check::<B, _>(Subspace);
    case.check::<B, _>(Sanger);
    case.check::<B, _>(Bcm::new(4.0).unwrap().with_decay(0.2).unwrap());
    case.check::<B, _>(Bcm::new(4.0).unwrap().with_form(BcmForm::Law));
}

fn every_rule_learns_as_tick_after_tick<B: Backend>() {
    for sequences in [1, 3] {
        with_every_rule::<B>(&Case { sequences, ..case() });
        let (relative, top_down) = (None, 0.0);
        with_every_rule::<B>(&Case { sequences, relative, top_down, ..case() });
    }
}

fn every_window_and_activation_learns_as_tick_after_tick<B: Backend>() {
    use Activation::{Linear, Relu, Tanh};
    use Aggregate::{Concat, Last, Mean};
    for (aggregate, activation) in [(Last, Linear), (Mean, Relu), (Concat, Tanh), (Concat, Relu)] {
        let top_down = if aggregate == Concat { 0.0 } else { -0.4 };
        for (periods, ticks) in [(vec![1, 2, 6], 1), (vec![2, 6, 6], 13), (vec![1, 1, 1], 4)] {
            let case = Case { aggregate, activation, top_down, periods, ticks, ..case() };
            case.check::<B, _>(Oja);
        }
    }
}

fn sizes_that_are_even_and_odd_learn_as_tick_after_tick<B: Backend>() {
    let cases = [
        (vec![1, 1], vec![1]),
        (vec![8, 16, 12], vec![1, 2]),
        (vec![33, 65, 130], vec![1, 2]),
        (vec![300, 3], vec![1]),
        (vec![4, 300, 8], vec![2, 2]),
    ];
    for (levels, periods) in cases {
        let case = Case { levels, periods, ticks: 5, activation: Activation::Linear, ..case() };
        for sequences in [1, 2] {
            let case = Case { sequences, ..case.clone() };
            case.check::<B, _>(Sanger);
        }
        case.check::<B, _>(Subspace);
    }
}

fn a_sequence_in_parts_is_the_sequence_in_any_way<B: Backend>() {
    for aggregate in [Aggregate::Last, Aggregate::Mean, Aggregate::Concat] {
        let top_down = if aggregate == Aggregate::Concat { 0.0 } else { 0.3 };
        let case = Case { aggregate, top_down, ticks: 11, ..case() };
        let (hierarchy, xs) = (case.hierarchy::<B>(), case.xs::<B>());
        let start = || case.start(&hierarchy, Covariance::new(3.0).unwrap());
        let whole = start().learn(xs.clone()).unwrap();
        let (mut fused, mut mixed) = (start(), start());
        for (part, (first, ticks)) in [(0, 3), (3, 1), (4, 7)].into_iter().enumerate() {
            let xs = xs.clone().narrow(1, first, ticks);
            fused = fused.run(xs.clone()).unwrap().0;
            let next = |mixed: Running<B, _>| mixed.run(xs).unwrap().0;
            // Between parts that are fused one that is not.
            mixed = if part == 1 { with_reference(|| next(mixed)) } else { next(mixed) };
        }
        assert_eq!(weights(&whole), weights(&fused), "{aggregate:?}");
        assert_same(&format!("{aggregate:?}"), &mixed, &whole);
    }
}

fn bounds_are_those_of_tick_after_tick<B: Backend>() {
    for relative in [None, Some(5.0)] {
        let case = Case { relative, ..case() };
        let (hierarchy, xs) = (case.hierarchy::<B>(), case.xs::<B>());
        // The first tick has zeros alone.
        let zeros = Tensor::zeros([case.sequences, 1, case.levels[0]], &Default::default());
        let xs = Tensor::cat(vec![zeros, xs], 1);
        let bounds = || case.start(&hierarchy, Oja).learn(xs.clone()).unwrap().bounds();
        let [actual, expected] = [bounds(), with_reference(bounds)].map(|bounds| {
            let bounds = bounds.into_iter().map(|bound| bound.unwrap() as f32);
            bounds.collect::<Vec<_>>()
        });
        assert_near(&format!("{relative:?}"), &actual, &expected);
    }
}

fn what_cannot_be_gone_through_is_an_error<B: Backend>() {
    let case = case();
    let (hierarchy, xs) = (case.hierarchy::<B>(), case.xs::<B>());
    let running = || case.start(&hierarchy, Oja).learn(xs.clone()).unwrap();
    let zeros = |shape: [usize; 3]| Tensor::<B, 3>::zeros(shape, &Default::default());
    // Zeros would be a launch of no blocks.
    let empty = |shape: [usize; 3]| Tensor::<B, 3>::empty(shape, &Default::default());
    let error = |xs| running().run(xs).map(|_| ()).unwrap_err();
    assert_eq!(error(empty([3, 0, 5])), PlasticityError::NoSteps);
    assert_eq!(error(empty([0, 2, 5])), PlasticityError::NoSequences);
    assert_eq!(error(zeros([2, 2, 5])), PlasticityError::Sequences { expected: 3, actual: 2 });
    assert_eq!(error(zeros([3, 2, 4])), PlasticityError::Inputs { expected: 5, actual: 4 });
    for bad in [f32::NAN, f32::INFINITY] {
        let actual = error(zeros([3, 2, 5]) + bad);
        assert_eq!(actual, PlasticityError::NotFinite { tick: case.ticks });
    }
}
