//! What holds on every backend.

pub use super::lists::*;

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::Autodiff;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};
use fewshot_kernels::{axpy, with_reference};

use crate::judge::read;
use crate::numbers::Numbers;

/// None, one, and more than a thread takes at once.
const LENGTHS: [usize; 3] = [0, 1, 70_001];

fn leaf<B: AutodiffBackend>(length: usize, seed: u64, tracked: bool) -> Tensor<B, 1> {
    let values = TensorData::from(&*Numbers(seed).values(length));
    let leaf = Tensor::from_data(values, &Default::default());
    if tracked { leaf.require_grad() } else { leaf }
}

/// The sum, and the gradients of its cube by what is tracked.
fn first<B: AutodiffBackend>(length: usize, [y, x]: [bool; 2]) -> Vec<Vec<f32>> {
    let (y, x) = (leaf::<B>(length, 1, y), leaf::<B>(length, 2, x));
    let sum = axpy(y.clone(), -0.4, x.clone());
    let gradients = sum.clone().powi_scalar(3).sum().backward();
    let found = [y, x].into_iter().filter_map(|leaf| leaf.grad(&gradients)).map(read);
    [read(sum.inner())].into_iter().chain(found).collect()
}

pub fn sums_and_gradients_are_those_of_two_operations<B: AutodiffBackend>() {
    for length in LENGTHS.into_iter().filter(|&length| length > 0) {
        for tracked in [[true; 2], [true, false], [false, true]] {
            let wanted = with_reference(|| first::<B>(length, tracked));
            assert_eq!(wanted.len(), 1 + tracked.iter().filter(|&&it| it).count());
            assert_eq!(first::<B>(length, tracked), wanted, "{length} of {tracked:?}");
        }
    }
    let none = axpy(leaf::<B>(0, 1, false), 2.0, leaf::<B>(0, 2, false));
    assert_eq!(none.dims(), [LENGTHS[0]]);
}

/// The gradients of the sum of squares of gradients.
fn second<B: AutodiffBackend>(length: usize) -> [Vec<f32>; 2] {
    let leaves = [1, 2].map(|seed| leaf::<B>(length, seed, true));
    let lifted = leaves.clone().map(Tensor::<Autodiff<B>, 1>::from_inner);
    let [y, x] = lifted.map(Tensor::require_grad);
    let gradients = axpy(y.clone(), 0.7, x.clone()).powi_scalar(3).sum().backward();
    let squares = [y, x].map(|leaf| leaf.grad(&gradients).expect("tracked").powi_scalar(2).sum());
    let [one, other] = squares;
    let gradients = (one + other).backward();
    leaves.map(|leaf| read(leaf.grad(&gradients).expect("tracked")))
}

pub fn gradients_of_gradients_are_too<B: AutodiffBackend>() {
    for length in [1, 70_001] {
        assert_eq!(second::<B>(length), with_reference(|| second::<B>(length)), "{length}");
    }
}

pub fn other_shapes_are_refused<B: Backend>() {
    let of = |length| Tensor::<B, 1>::zeros([length], &Default::default());
    let run = || axpy(of(3), 1.0, of(1));
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
}
