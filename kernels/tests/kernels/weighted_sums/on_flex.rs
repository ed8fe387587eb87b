//! What needs one backend only.

use burn::backend::{Autodiff, Flex};
use burn::tensor::{DType, Tensor};
use fewshot_kernels::{weighted_sums, with_reference};

use crate::judge::with_any_threads;
use crate::rank_update::laws::{read, tensor};
use crate::refusal::refusal;
use crate::steps::set::{Layout, assert_close};

fn matrix(shape: [usize; 2], seed: u64) -> Tensor<Flex, 2> {
    tensor(shape, Layout::Contiguous, seed)
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let run = || {
        let sums = weighted_sums(matrix([33, 205], 1), matrix([403, 205], 2));
        read(&sums).into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    with_any_threads("sums", run);
}

#[test]
fn no_example_no_input_and_no_neuron_are_sums_too() {
    for [examples, inputs, neurons] in [[0, 3, 2], [5, 0, 2], [5, 3, 0]] {
        let sums = weighted_sums(matrix([examples, inputs], 1), matrix([neurons, inputs], 2));
        assert_eq!(sums.dims(), [examples, neurons]);
        assert!(read(&sums).iter().all(|&sum| sum == 0.0));
    }
}

#[test]
fn other_types_take_the_reference() {
    for dtype in [DType::F64, DType::F16] {
        let sums = || weighted_sums(matrix([5, 3], 1).cast(dtype), matrix([2, 3], 2).cast(dtype));
        let (found, wanted) = (sums(), with_reference(sums));
        assert_eq!(found.dtype(), dtype);
        assert_eq!(found.into_data(), wanted.into_data());
    }
}

#[test]
fn gradients_and_second_gradients_flow_to_both_operands() {
    type B = Autodiff<Autodiff<Flex>>;
    let of = |shape, seed| tensor::<B>(shape, Layout::Contiguous, seed);
    let (inner_x, inner_w) = (of([4, 3], 1).inner(), of([5, 3], 2).inner());
    let (inner_x, inner_w) = (inner_x.require_grad(), inner_w.require_grad());
    let x = Tensor::<B, 2>::from_inner(inner_x.clone()).require_grad();
    let w = Tensor::<B, 2>::from_inner(inner_w.clone()).require_grad();
    let y = weighted_sums(x.clone(), w.clone());
    let gradients = (y.clone() * y).sum().backward();
    let (by_x, by_w) = (x.grad(&gradients).unwrap(), w.grad(&gradients).unwrap());
    // The sum of the squares of `x w^T` has the gradients `2 x w^T w` and `2 w x^T x`.
    let (flat_x, flat_w) = (inner_x.clone().inner(), inner_w.clone().inner());
    let sums = flat_x.clone().matmul(flat_w.clone().transpose()) * 2.0;
    let close = |what: &str, found: Tensor<Flex, 2>, wanted: Tensor<Flex, 2>| {
        assert_close(what, &read(&found), &read(&wanted), 1e-5);
    };
    close("by x", by_x.clone().inner(), sums.clone().matmul(flat_w.clone()));
    close("by w", by_w.inner(), sums.clone().transpose().matmul(flat_x.clone()));
    // And the sum of `2 x w^T w` the gradients `2 1 w^T w` and `2 w (x^T 1 + 1^T x)`.
    let second = by_x.sum().backward();
    let ones = Tensor::<Flex, 2>::ones([4, 3], &Default::default());
    let by_x = ones.clone().matmul(flat_w.clone().transpose()).matmul(flat_w.clone()) * 2.0;
    close("by x, then x", inner_x.grad(&second).unwrap(), by_x);
    let both = flat_x.clone().transpose().matmul(ones.clone()) + ones.transpose().matmul(flat_x);
    close("by x, then w", inner_w.grad(&second).unwrap(), flat_w.matmul(both) * 2.0);
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    for found in [[3, 4], [3, 1], [5, 3]] {
        let said = refusal(|| weighted_sums(matrix([2, 5], 1), matrix(found, 2)));
        let wanted = "neurons that sum up 5 inputs have a weight [neurons, 5], found";
        assert_eq!(said, format!("{wanted} {found:?}"));
    }
}
