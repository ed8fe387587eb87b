//! What needs one backend only.

use burn::backend::{Autodiff, Flex};
use burn::tensor::{DType, Tensor};
use fewshot_kernels::rank_update::RankError;
use fewshot_kernels::{Kept, rank_update, with_reference};

use super::laws::{read, shares, tensor};
use crate::refusal::refusal;
use crate::steps::set::{Layout, assert_close};

fn matrix(shape: [usize; 2], seed: u64) -> Tensor<Flex, 2> {
    tensor(shape, Layout::Contiguous, seed)
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for k in [1, 7, 64] {
        for kept in shares::<Flex>(403, Layout::Contiguous) {
            let run = || {
                let factors = (matrix([k, 403], 2), matrix([k, 805], 3));
                let weight = matrix([403, 805], 1);
                let grown = rank_update(weight, kept.clone(), factors.0, factors.1);
                read(&grown).into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            let [one, two, three] = [1, 2, 3].map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
                pool.build().unwrap().install(run)
            });
            assert!(one == two && one == three, "{k}, {kept:?}");
        }
    }
}

#[test]
fn memory_that_nothing_else_holds_is_written_to() {
    let mut weight = matrix([40, 50], 1);
    let mut places = Vec::new();
    for seed in 2..6 {
        weight = rank_update(weight, Kept::Share(0.9), matrix([1, 40], seed), matrix([1, 50], 7));
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
            let kept = Kept::Each(of([7, 1], 4));
            rank_update(of([7, 9], 1), kept, of([2, 7], 2), of([2, 9], 3))
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
    let kept = Kept::Each(shares.clone());
    let grown = rank_update(weight.clone(), kept, left.clone(), right.clone());
    let gradients = grown.sum().backward();
    let found = |tensor: &Tensor<B, 2>| read(&tensor.grad(&gradients).unwrap());
    let ones = Tensor::<Flex, 2>::ones([3, 5], &Default::default());
    let wanted = |tensor: Tensor<Flex, 2>| read(&tensor);
    let close = |found: Vec<f32>, wanted: Vec<f32>| assert_close("gradient", &found, &wanted, 1e-5);
    close(found(&weight), wanted(ones.clone() * shares.clone().inner()));
    close(found(&shares), wanted(weight.inner().sum_dim(1)));
    close(found(&left), wanted(right.clone().inner().matmul(ones.clone().transpose())));
    close(found(&right), wanted(left.inner().matmul(ones)));
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let refused = |kept, left, right, wanted: RankError| {
        let factors = (matrix(left, 2), matrix(right, 3));
        let said = refusal(|| rank_update(matrix([3, 5], 1), kept, factors.0, factors.1));
        assert_eq!(said, wanted.to_string());
    };
    for (left, right) in [([2, 5], [2, 3]), ([2, 3], [1, 5]), ([2, 3], [2, 1]), ([2, 1], [2, 5])] {
        let wanted = RankError::Factors { weight: [3, 5], left, right };
        refused(Kept::Share(1.0), left, right, wanted);
    }
    for found in [[5, 1], [1, 3], [3, 5]] {
        let kept = Kept::Each(matrix(found, 4));
        refused(kept, [2, 3], [2, 5], RankError::Kept { rows: 3, found });
    }
}
