//! What holds on every backend.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::Autodiff;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};
use fewshot_kernels::{
    TaskLoss, TaskLossOptions, task_accuracy, task_loss, task_loss_with, with_reference,
};

use crate::judge::{Judge, assert_close, read};
use crate::numbers::Numbers;

const SHAPES: [[usize; 3]; 4] = [[1, 1, 1], [2, 3, 5], [3, 7, 1], [4, 150, 6]];

const LOSSES: [TaskLoss; 2] = [TaskLoss::CrossEntropy, TaskLoss::SquaredError];

fn drawn<B: Backend>(shape: [usize; 3], seed: u64) -> Tensor<B, 3> {
    let values = Numbers(seed).values(shape.iter().product());
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

/// Ones for classes, and numbers that add up to no one.
fn targets<B: Backend>(shape: [usize; 3], of: TaskLoss) -> Tensor<B, 3> {
    match of {
        TaskLoss::SquaredError => drawn(shape, 2),
        TaskLoss::CrossEntropy => drawn(shape, 2).abs() * 0.5,
    }
}

/// NdArray's vectorised reciprocal, through which the gradient of a logarithm goes, is right to 11 bits on
/// AVX2 and 14 on AVX-512. A buffer's ends are exact, and where they are depends on its address.
fn bound<B: Backend>() -> f32 {
    if B::name(&Default::default()).contains("ndarray") { 1e-3 } else { 2e-6 }
}

fn close<B: Backend>(what: &str, found: &[Vec<f32>], expected: &[Vec<f32>]) {
    for (found, expected) in found.iter().zip(expected) {
        let most = expected.iter().fold(1.0f32, |most, value| most.max(value.abs()));
        assert_close(what, found, expected, bound::<B>() * most);
    }
}

/// The loss, and the gradient of its square.
fn first_order<B: AutodiffBackend>(shape: [usize; 3], of: TaskLoss) -> [Vec<f32>; 2] {
    let outputs = drawn::<B>(shape, 1).mul_scalar(3.0).require_grad();
    let loss = task_loss(outputs.clone(), targets(shape, of), of);
    let gradients = (loss.clone() * loss.clone()).backward();
    let found = outputs.grad(&gradients).expect("tracked");
    [read(loss.inner()), read(found)]
}

/// The gradient, and that of a weighted sum of it, with a loss that is curved in the inner loss too, or is
/// not.
fn second_order<B: AutodiffBackend>(
    shape: [usize; 3],
    of: TaskLoss,
    (curved, options): (bool, TaskLossOptions),
) -> [Vec<f32>; 2] {
    let outer = drawn::<B>(shape, 1).mul_scalar(3.0).require_grad();
    let outputs = Tensor::<Autodiff<B>, 3>::from_inner(outer.clone()).require_grad();
    let loss = task_loss_with(outputs.clone(), targets(shape, of), of, options);
    let loss = if curved { loss.clone() * loss } else { loss };
    let gradient = outputs.grad(&loss.backward()).expect("tracked");
    let found = (gradient.clone() * drawn::<B>(shape, 5)).sum().backward();
    [read(gradient.inner()), read(outer.grad(&found).expect("tracked"))]
}

pub fn losses_and_gradients_are_those_of_plain_operations<B: AutodiffBackend>() {
    for shape in SHAPES {
        for of in LOSSES {
            let expected = with_reference(|| first_order::<Judge>(shape, of));
            close::<B>(&format!("{of:?} of {shape:?}"), &first_order::<B>(shape, of), &expected);
        }
    }
}

pub fn gradients_of_gradients_are_too<B: AutodiffBackend>() {
    for shape in SHAPES {
        for of in LOSSES {
            for curved in [false, true] {
                let what = format!("{of:?} of {shape:?}, curved: {curved}");
                let how = (curved, TaskLossOptions::default());
                let expected = with_reference(|| second_order::<Judge>(shape, of, how));
                close::<B>(&what, &second_order::<B>(shape, of, how), &expected);
            }
        }
    }
}

pub fn a_factor_multiplies_a_loss_and_its_gradients<B: AutodiffBackend>() {
    let (shape, factor) = ([4, 150, 6], 0.375);
    for of in LOSSES {
        let options = TaskLossOptions { factor, ..Default::default() };
        let loss =
            |options| read(task_loss_with(drawn::<B>(shape, 1), targets(shape, of), of, options));
        let scaled = |all: Vec<f32>| all.into_iter().map(|one| factor as f32 * one).collect();
        close::<B>("loss", &[loss(options)], &[scaled(loss(TaskLossOptions::default()))]);
        let whole = second_order::<B>(shape, of, (false, TaskLossOptions::default()));
        close::<B>(
            "gradients",
            &second_order::<B>(shape, of, (false, options)),
            &whole.map(scaled),
        );
    }
}

pub fn a_loss_for_its_gradient_alone_has_the_same_gradients<B: AutodiffBackend>() {
    for of in LOSSES {
        let found = |gradient_alone| {
            let options = TaskLossOptions { factor: 0.5, gradient_alone };
            second_order::<B>([3, 7, 4], of, (false, options))
        };
        close::<B>(&format!("{of:?}"), &found(true), &found(false));
    }
}

pub fn other_shapes_are_refused<B: Backend>() {
    let of = |length| Tensor::<B, 3>::zeros([1, 2, length], &Default::default());
    let run = || task_loss(of(3), of(1), TaskLoss::SquaredError);
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
}

/// Counted by hand, of rows of distinct values.
pub fn accuracies_are_shares_of_right_answers<B: AutodiffBackend>() {
    for shape in SHAPES {
        let [outputs, targets] =
            [1, 2].map(|seed| drawn::<B::InnerBackend>(shape, seed).mul_scalar(3.0));
        let largest = |of: &[f32]| (0..of.len()).max_by(|&a, &b| of[a].total_cmp(&of[b]));
        let [ours, theirs] = [&outputs, &targets].map(|of| read(of.clone()));
        let rows = ours.chunks(shape[2]).zip(theirs.chunks(shape[2]));
        let right = rows.filter(|(output, target)| largest(output) == largest(target)).count();
        let accuracy = task_accuracy(outputs, targets, 0.5);
        let expected = 0.5 * right as f32 / shape[1] as f32;
        assert_close("accuracy", &read(accuracy), &[expected], 1e-6 * expected.max(1.0));
    }
    let none = |shape: [usize; 3]| Tensor::<B::InnerBackend, 3>::empty(shape, &Default::default());
    let accuracy = read(task_accuracy(none([0, 2, 3]), none([0, 2, 3]), 1.0));
    assert_eq!(accuracy, [0.0]);
    assert!(read(task_accuracy(none([2, 0, 3]), none([2, 0, 3]), 1.0))[0].is_nan());
}
