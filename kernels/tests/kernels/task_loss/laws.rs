//! What holds on every backend.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::Autodiff;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};
use fewshot_kernels::{TaskLoss, task_loss, with_reference};

use crate::judge::{assert_close, read};
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

fn close(what: &str, found: &[Vec<f32>], expected: &[Vec<f32>]) {
    for (found, expected) in found.iter().zip(expected) {
        let most = expected.iter().fold(1.0f32, |most, value| most.max(value.abs()));
        assert_close(what, found, expected, 2e-6 * most);
    }
}

pub fn losses_and_gradients_are_those_of_plain_operations<B: AutodiffBackend>() {
    for shape in SHAPES {
        for of in LOSSES {
            let run = || {
                let outputs = drawn::<B>(shape, 1).mul_scalar(3.0).require_grad();
                let loss = task_loss(outputs.clone(), targets(shape, of), of);
                let gradients = (loss.clone() * loss.clone()).backward();
                let found = outputs.grad(&gradients).expect("tracked");
                [read(loss.inner()), read(found)]
            };
            close(&format!("{of:?} of {shape:?}"), &run(), &with_reference(run));
        }
    }
}

pub fn gradients_of_gradients_are_too<B: AutodiffBackend>() {
    for shape in SHAPES {
        for of in LOSSES {
            // With a loss that is curved in the inner loss too, and one that is not.
            for curved in [false, true] {
                let run = || {
                    let outer = drawn::<B>(shape, 1).mul_scalar(3.0).require_grad();
                    let outputs =
                        Tensor::<Autodiff<B>, 3>::from_inner(outer.clone()).require_grad();
                    let loss = task_loss(outputs.clone(), targets(shape, of), of);
                    let loss = if curved { loss.clone() * loss } else { loss };
                    let gradient = outputs.grad(&loss.backward()).expect("tracked");
                    let along = drawn::<B>(shape, 5);
                    let found = (gradient * along).sum().backward();
                    [read(outer.grad(&found).expect("tracked"))]
                };
                let what = format!("{of:?} of {shape:?}, curved: {curved}");
                close(&what, &run(), &with_reference(run));
            }
        }
    }
}

pub fn other_shapes_are_refused<B: Backend>() {
    let of = |length| Tensor::<B, 3>::zeros([1, 2, length], &Default::default());
    let run = || task_loss(of(3), of(1), TaskLoss::SquaredError);
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
}
