//! What holds on every backend.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, Tensor};
use fewshot_kernels::{LinearLayer, Precision, linear_stack, product, with_reference};

use super::case::{Case, Operands, assert_same, leaves, read, weighted};
use crate::judge::{self, Judge};

/// A factor that TF32 rounds to one.
const FACTOR: f32 = 1.0 + 1.0 / 4096.0;

/// The squares of factors that TF32 would round, by [`product`] and in both of its gradients.
fn assert_products_are_f32<B: AutodiffBackend>() {
    let of =
        |shape: [usize; 2]| Tensor::<B, 2>::full(shape, FACTOR, &Default::default()).require_grad();
    let (left, right) = (of([3, 2]), of([2, 5]));
    let products = product(left.clone(), right.clone());
    let gradients = (products.clone() * FACTOR).sum().backward();
    let square = FACTOR * FACTOR;
    judge::assert_close("products", &judge::read(products), &[2.0 * square; 15], 1e-6);
    let [left, right] = [left, right].map(|of| judge::read(of.grad(&gradients).unwrap()));
    judge::assert_close("left", &left, &[5.0 * square; 6], 2e-6);
    judge::assert_close("right", &right, &[3.0 * square; 10], 2e-6);
}

/// Where the reference is asked for, and where a stack of backends has no other.
pub fn f32_is_multiplied_in_full_by_the_reference_too<B: AutodiffBackend>() {
    assert_products_are_f32::<B>();
    with_reference(assert_products_are_f32::<B>);
    with_reference(assert_products_are_f32::<Autodiff<B>>);
    assert_products_are_f32::<Autodiff<B, BalancedCheckpointing>>();
}

pub fn values_and_gradients_are_those_in_f64<B: AutodiffBackend>() {
    for case in Case::all::<B>() {
        let tracked = vec![true; case.operands()];
        let wanted = case.first::<Judge>(DType::F64, &tracked);
        assert_same(&format!("{case:?}"), &case.first::<B>(DType::F32, &tracked), &wanted);
    }
}

pub fn second_gradients_are_those_in_f64<B: AutodiffBackend>() {
    for case in Case::all::<B>() {
        let tracked = vec![true; case.operands()];
        let wanted = case.second::<Judge>(DType::F64, &tracked);
        assert_same(&format!("{case:?}"), &case.second::<B>(DType::F32, &tracked), &wanted);
    }
}

pub fn more_operands_than_a_node_has_parents_are_differentiated_twice<B: AutodiffBackend>() {
    let case = Case::new(2, 3, &[8; 21]);
    let tracked = vec![true; case.operands()];
    let wanted = case.second::<Judge>(DType::F64, &tracked);
    assert_same("20 layers", &case.second::<B>(DType::F32, &tracked), &wanted);
}

pub fn any_part_of_the_operands_can_be_differentiated<B: AutodiffBackend>() {
    let case = Case::new(2, 5, &[3, 18, 4]);
    for mask in 1..1 << case.operands() {
        let tracked: Vec<_> = (0..case.operands()).map(|place| mask >> place & 1 == 1).collect();
        let wanted = case.first::<Judge>(DType::F64, &tracked);
        assert_same(&format!("{tracked:?}"), &case.first::<B>(DType::F32, &tracked), &wanted);
        let wanted = case.second::<Judge>(DType::F64, &tracked);
        assert_same(&format!("{tracked:?}"), &case.second::<B>(DType::F32, &tracked), &wanted);
    }
}

pub fn operands_may_be_tracked_at_either_level_and_count_or_not<B: AutodiffBackend>() {
    let case = Case::new(2, 5, &[3, 18, 4]);
    let only =
        |places: &[usize]| -> Vec<_> { (0..5).map(|place| places.contains(&place)).collect() };
    let all = only(&[0, 1, 2, 3, 4]);
    for [below, above, counted] in [
        [only(&[1, 3]), only(&[0, 2]), all.clone()],
        [only(&[0]), only(&[3]), all.clone()],
        [only(&[2]), only(&[0, 1, 2, 3, 4]), all.clone()],
        [all.clone(), all.clone(), only(&[1])],
        [all.clone(), all.clone(), only(&[0])],
        [all.clone(), all.clone(), only(&[2, 4])],
    ] {
        let masks = [&below[..], &above, &counted];
        let wanted = case.second_by::<Judge>(DType::F64, masks);
        assert_same(&format!("{masks:?}"), &case.second_by::<B>(DType::F32, masks), &wanted);
    }
}

pub fn slopes_of_a_loss_that_is_not_curved_go_back_too<B: AutodiffBackend>() {
    let case = Case::new(2, 5, &[3, 18, 4]);
    let masks = [&[true; 5][..]; 3];
    let wanted = case.second_of::<Judge>(DType::F64, masks, weighted);
    assert_same("weighted", &case.second_of::<B>(DType::F32, masks, weighted), &wanted);
}

pub fn lanes_are_what_they_are_alone<B: AutodiffBackend>() {
    let case = Case::new(5, 7, &[6, 21, 3]);
    let values = case.values(2);
    let all = read(case.run(&leaves::<B>(&values, DType::F32, &[false; 5])));
    for lane in 0..case.lanes {
        let own = |all: &Vec<f32>| {
            let length = all.len() / case.lanes;
            all[lane * length..][..length].to_vec()
        };
        let alone = Case { lanes: 1, ..case.clone() };
        let values: Vec<_> = values.iter().map(own).collect();
        let found = read(alone.run(&leaves::<B>(&values, DType::F32, &[false; 5])));
        let wanted = all[lane * found.len()..][..found.len()].to_vec();
        assert_same(&format!("lane {lane}"), &[found], &[wanted]);
    }
}

pub fn an_accelerator_multiplies_f32_in_every_precision<B: AutodiffBackend>() {
    let case = Case::new(2, 5, &[3, 18, 4]);
    let flat = leaves::<B>(&case.values(2), DType::F32, &[false; 5]);
    let run = |precision: Precision| {
        let Operands { x, layers } = case.shaped(&flat);
        let LinearLayer { weight, bias } = layers[1].clone();
        let (weight, bias) = (weight.narrow(0, 0, 18), bias.map(|bias| bias.narrow(0, 0, 4)));
        let alone = precision.linear(Tensor::ones([5, 18], &x.device()), weight, bias);
        [read(linear_stack(x, &layers, precision)), read(alone)]
    };
    let wanted = run(Precision::F32);
    for precision in Precision::ALL {
        assert_eq!(run(precision), wanted, "{precision:?}");
    }
}

pub fn what_is_not_finite_goes_wherever_it_does_in_the_reference<B: AutodiffBackend>() {
    let case = Case::new(2, 6, &[3, 18, 4]);
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for (place, odd) in (0..case.operands()).flat_map(|place| odd.map(|odd| (place, odd))) {
        let mut values = case.values(3);
        // Of the second lane.
        let middle = values[place].len() / 2;
        values[place][middle] = odd;
        let found = halved::<B>(&case, &values);
        let wanted = with_reference(|| halved::<Judge>(&case, &values));
        for (found, wanted) in found.iter().zip(&wanted) {
            let (first, second) = found.split_at(found.len() / 2);
            assert!(first.iter().all(|value| value.is_finite()), "{odd} in {place} crosses lanes");
            let lost = second.iter().zip(&wanted[found.len() / 2..]);
            let lost = lost.filter(|(found, wanted)| found.is_finite() && !wanted.is_finite());
            assert_eq!(lost.count(), 0, "{odd} in operand {place}");
        }
        // ReLU lets NaN pass here, as in PyTorch.
        if odd.is_nan() {
            assert!(found[0].iter().any(|value| value.is_nan()), "NaN in operand {place}");
        }
    }
}

/// The outputs, and the gradients of half their sum by every operand.
fn halved<B: AutodiffBackend>(case: &Case, values: &[Vec<f32>]) -> Vec<Vec<f64>> {
    let leaves = leaves::<B>(values, DType::F32, &[true; 5]);
    let y = case.run(&leaves);
    let gradients = (y.clone() * 0.5).sum().backward();
    let gradient = |leaf: &Tensor<B, 1>| read(leaf.grad(&gradients).expect("tracked"));
    std::iter::once(read(y.inner())).chain(leaves.iter().map(gradient)).collect()
}
