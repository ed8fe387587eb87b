//! What needs one backend only.

use burn::backend::{Autodiff, Flex};
use burn::tensor::ops::FloatTensor;
use burn::tensor::ops::FloatTensorOps;
use burn::tensor::{DType, FloatDType};
use fewshot_kernels::optim_step::WeightDecay;
use fewshot_kernels::{StepState, StepTensors, grad_stats, optim_step, with_reference};

use super::laws::moves_in_single_precision;
use super::set::*;
use crate::judge::with_any_threads;
use crate::refusal::refusal;

fn tensor(shape: &[usize], seed: u64) -> FloatTensor<Flex> {
    laid_out::<Flex>(shape, Layout::Contiguous, seed)
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let shapes: [&[usize]; 4] = [&[700, 601], &[33], &[64, 64, 3, 3], &[16_385]];
    for rule in rules() {
        let run = || {
            let set = || shapes.iter().zip(1..).map(|(shape, seed)| tensor(shape, seed));
            let of = set().zip(set()).map(|(parameter, gradient)| first(parameter, gradient));
            let moved = optim_step::<Flex>(of.collect(), &rule, 0.1);
            let elements: Vec<_> = moved.iter().map(read_all::<Flex>).collect();
            (elements, grad_stats::<Flex>(set().collect(), 0.3).1.norm.to_bits())
        };
        with_any_threads(&format!("{rule:?}"), run);
    }
}

#[test]
fn memory_that_nothing_else_holds_is_written_to() {
    for rule in rules() {
        let mut of = first(tensor(&[40, 50], 1), tensor(&[40, 50], 2));
        let mut places = Vec::new();
        for seed in 3..6 {
            let moved = optim_step::<Flex>(vec![of], &rule, 0.1).remove(0);
            let state = moved.state.tensors.iter().flatten();
            let all = std::iter::once(&moved.parameter).chain(state);
            places.push(all.map(|tensor| tensor.bytes().as_ptr()).collect::<Vec<_>>());
            of = next(moved, tensor(&[40, 50], seed));
        }
        assert!(places[0] == places[1] && places[1] == places[2], "{rule:?}");
    }
}

#[test]
fn bf16_moves_in_single_precision() {
    moves_in_single_precision::<Flex>(FloatDType::BF16, 8e-3, 2e-2);
}

#[test]
fn a_set_may_mix_types() {
    let rule = adam(WeightDecay::NONE);
    let double = |seed| Flex::float_cast(tensor(&[31], seed), FloatDType::F64);
    let set = || {
        vec![
            first(tensor(&[5], 1), tensor(&[5], 2)),
            first(double(3), double(4)),
            first(tensor(&[7, 3], 5), tensor(&[7, 3], 6)),
        ]
    };
    let found = optim_step::<Flex>(set(), &rule, 0.1);
    let wanted = with_reference(|| optim_step::<Flex>(set(), &rule, 0.1));
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_eq!(found.parameter.dtype(), wanted.parameter.dtype());
        assert_close(
            "mixed",
            &read::<Flex>(&found.parameter),
            &read::<Flex>(&wanted.parameter),
            1e-6,
        );
    }
    assert_eq!(found[1].parameter.dtype(), DType::F64);
}

#[test]
fn a_backend_that_is_not_registered_takes_the_reference() {
    type B = Autodiff<Flex>;
    for rule in rules() {
        let vector = |seed| vector::<B>(&values(33, seed));
        let moved = optim_step::<B>(vec![first(vector(1), vector(2))], &rule, 0.1).remove(0);
        let of = vec![first(tensor(&[33], 1), tensor(&[33], 2))];
        let wanted = optim_step::<Flex>(of, &rule, 0.1).remove(0);
        assert_close(
            "tracked",
            &read::<B>(&moved.parameter),
            &read::<Flex>(&wanted.parameter),
            1e-5,
        );
    }
}

#[test]
fn tensors_that_do_not_belong_together_are_refused() {
    let refused = |of: StepTensors<FloatTensor<Flex>>, rule, wanted: &str| {
        let said = refusal(|| optim_step::<Flex>(vec![of], &rule, 0.1));
        assert_eq!(said, wanted);
    };
    let rule = adam(WeightDecay::NONE);
    let wanted = "a parameter of shape [2, 3] cannot step by a tensor of shape [3, 2]";
    refused(first(tensor(&[2, 3], 1), tensor(&[3, 2], 1)), rule, wanted);
    let state = StepState { time: 1, tensors: [Some(tensor(&[4], 1)), None] };
    let of = StepTensors { state, ..first(tensor(&[4], 1), tensor(&[4], 2)) };
    let wanted = "the rule remembers 2 tensors of a parameter, the state has 1";
    refused(of.clone(), rule, wanted);
    let wanted = "the rule remembers 0 tensors of a parameter, the state has 1";
    refused(of, sgd(None, false, 0.0), wanted);
}

#[test]
fn a_state_without_tensors_starts_over() {
    let rule = adam(WeightDecay::NONE);
    let of = |time| {
        let state = StepState { time, tensors: [None, None] };
        StepTensors { state, ..first(tensor(&[4], 1), tensor(&[4], 2)) }
    };
    let [fresh, late] = [0, 9].map(|time| optim_step::<Flex>(vec![of(time)], &rule, 0.1).remove(0));
    assert_eq!(late.state.time, 1);
    assert_eq!(read::<Flex>(&fresh.parameter), read::<Flex>(&late.parameter));
}
