//! What needs one backend only.

use burn::backend::{Autodiff, Flex};
use burn::tensor::{DType, Tensor};
use fewshot_kernels::{Coefficient, rank_update, with_reference};

use super::laws::{read, tensor, ways};
use crate::judge::with_any_threads;
use crate::refusal::refusal;
use crate::steps::set::{Layout, assert_close};

fn matrix(shape: [usize; 2], seed: u64) -> Tensor<Flex, 2> {
    tensor(shape, Layout::Contiguous, seed)
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for k in [1, 7, 64] {
        for (lost, rate) in ways::<Flex>(703, Layout::Contiguous) {
            let run = || {
                let factors = (matrix([k, 703], 2), matrix([k, 805], 3));
                let weight = matrix([703, 805], 1);
                let grown = rank_update(weight, lost.clone(), factors.0, factors.1, rate.clone());
                read(&grown).into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            with_any_threads(&format!("{k}, {lost:?}"), run);
        }
    }
}

#[test]
fn memory_that_nothing_else_holds_is_written_to() {
    let mut weight = matrix([40, 50], 1);
    let mut places = Vec::new();
    for seed in 2..6 {
        let (left, right) = (matrix([1, 40], seed), matrix([1, 50], 7));
        weight =
            rank_update(weight, Coefficient::Number(0.9), left, right, Coefficient::Number(0.5));
        let primitive = weight.clone().into_primitive().tensor();
        places.push(primitive.bytes().as_ptr());
    }
    assert!(places.windows(2).all(|pair| pair[0] == pair[1]), "{places:?}");
}

#[test]
fn other_types_take_the_reference() {
    for dtype in [DType::F64, DType::F16] {
        let update = || {
            let of = |shape, seed| matrix(shape, seed).cast(dtype);
            let (lost, rate) = (Coefficient::Tensor(of([7, 1], 4)), Coefficient::Number(0.5));
            rank_update(of([7, 9], 1), lost, of([2, 7], 2), of([2, 9], 3), rate)
        };
        let (found, wanted) = (update(), with_reference(update));
        assert_eq!(found.dtype(), dtype);
        assert_eq!(found.into_data(), wanted.into_data());
    }
}

#[test]
fn gradients_flow_to_every_operand() {
    type B = Autodiff<Flex>;
    let of = |shape, seed| tensor::<B>(shape, Layout::Contiguous, seed).require_grad();
    let (weight, shares) = (of([3, 5], 1), of([3, 1], 2));
    let (left, right) = (of([2, 3], 3), of([2, 5], 4));
    let rate = Tensor::<B, 1>::from_data([0.5], &Default::default()).require_grad();
    let (lost, read_rate) =
        (Coefficient::Tensor(shares.clone()), Coefficient::Tensor(rate.clone()));
    let grown = rank_update(weight.clone(), lost, left.clone(), right.clone(), read_rate);
    let gradients = grown.sum().backward();
    let found = |tensor: &Tensor<B, 2>| read(&tensor.grad(&gradients).unwrap());
    let wanted = |tensor: Tensor<Flex, 2>| read(&tensor);
    let close = |found: Vec<f32>, wanted: Vec<f32>| assert_close("gradient", &found, &wanted, 1e-5);
    let inner = [weight.clone(), shares.clone(), left.clone(), right.clone()].map(Tensor::inner);
    let [w, s, l, r] = inner;
    let ones = Tensor::<Flex, 2>::ones([3, 5], &Default::default());
    close(found(&weight), wanted(ones.clone() * (1.0 - s.clone() * 0.5)));
    close(found(&shares), wanted(w.clone().sum_dim(1) * -0.5));
    close(found(&left), wanted(r.clone().matmul(ones.clone().transpose()) * 0.5));
    close(found(&right), wanted(l.clone().matmul(ones) * 0.5));
    let by_rate = (l.transpose().matmul(r) - w * s).sum().into_scalar();
    let found = rate.grad(&gradients).unwrap().into_scalar();
    assert!((found - by_rate).abs() < 1e-5, "{found} for {by_rate}");
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let refused = |lost, left, right, rate, wanted: String| {
        let factors = (matrix(left, 2), matrix(right, 3));
        let said = refusal(|| rank_update(matrix([3, 5], 1), lost, factors.0, factors.1, rate));
        assert_eq!(said, wanted);
    };
    let whole = || Coefficient::Number(1.0);
    for (left, right) in [([2, 5], [2, 3]), ([2, 3], [1, 5]), ([2, 3], [2, 1]), ([2, 1], [2, 5])] {
        let wanted = format!(
            "a weight of shape [3, 5] cannot grow by the transpose of {left:?} times {right:?}"
        );
        refused(Coefficient::Number(0.0), left, right, whole(), wanted);
    }
    for found in [[5, 1], [1, 3], [3, 5]] {
        let lost = Coefficient::Tensor(matrix(found, 4));
        let wanted = format!("a weight of 3 rows loses a share [3, 1] or [1, 1], found {found:?}");
        refused(lost, [2, 3], [2, 5], whole(), wanted);
    }
    let three = Coefficient::Tensor(matrix([3, 1], 4).reshape([3]));
    refused(
        Coefficient::Number(0.0),
        [2, 3],
        [2, 5],
        three,
        "an update has one rate, found 3".into(),
    );
}
