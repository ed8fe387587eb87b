//! What needs one backend only.

use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::backend::{Autodiff, Flex};
use burn::tensor::{DType, Tensor};
use fewshot_kernels::{LinearLayer, Precision, linear_stack, with_reference};

use super::case::{Case, assert_same, leaves, read};
use crate::judge::with_any_threads;
use crate::numbers::Numbers;
use crate::refusal::refusal;

type B = Autodiff<Flex>;

#[test]
fn the_number_of_threads_changes_no_bit() {
    let case = Case::new(9, 50, &[70, 90, 40]);
    let run = || {
        let tracked = [true; 5];
        [case.first::<B>(DType::F32, &tracked), case.second::<B>(DType::F32, &tracked)]
    };
    with_any_threads("two orders", run);
}

#[test]
fn no_example_is_a_stack_too() {
    let device = Default::default();
    let weight = Tensor::<B, 2>::ones([6, 4], &device).require_grad();
    let layers = [LinearLayer { weight: weight.clone(), bias: None }];
    let y = linear_stack(Tensor::zeros([2, 0, 3], &device), &layers, Precision::F32);
    assert_eq!(y.dims(), [2, 0, 4]);
    let gradient = weight.grad(&y.sum().backward()).unwrap();
    assert_eq!(read(gradient), [0.0; 24]);
}

#[test]
fn a_low_precision_rounds_products_alone() {
    let case = Case::new(3, 5, &[4, 20, 2]);
    let flat = leaves::<B>(&case.values(1), DType::F32, &[false; 5]);
    let [f32, bf16] = [Precision::F32, Precision::MixedBf16].map(|precision| {
        let operands = case.shaped(&flat);
        read(linear_stack(operands.x, &operands.layers, precision))
    });
    let off = f32.iter().zip(&bf16).map(|(one, other)| (one - other).abs()).fold(0.0, f64::max);
    assert!(off > 1e-4 && off < 0.1, "{off}");
}

#[test]
fn checkpointing_of_plain_operations_changes_nothing() {
    type Balanced = Autodiff<Flex, BalancedCheckpointing>;
    let (case, tracked) = (Case::new(3, 6, &[4, 17, 5]), [true; 5]);
    let wanted = case.first::<B>(DType::F32, &tracked);
    assert_eq!(case.first::<Balanced>(DType::F32, &tracked), wanted);
}

#[test]
fn other_types_take_the_reference() {
    let (case, tracked) = (Case::new(3, 6, &[4, 17, 5]), [true; 5]);
    let run = || case.first::<B>(DType::F16, &tracked);
    assert_eq!(run(), with_reference(run));
}

#[test]
fn one_weight_may_serve_two_layers() {
    let tensor = |shape: [usize; 2], seed| {
        let values = Numbers(seed).data(shape, |value| value);
        Tensor::<B, 2>::from_data(values, &Default::default())
    };
    let weight = tensor([6, 3], 1).require_grad();
    let layer = || LinearLayer { weight: weight.clone(), bias: None };
    let gradient = || {
        let x = tensor([8, 3], 2).reshape([2, 4, 3]);
        let y = linear_stack(x, &[layer(), layer()], Precision::F32);
        read(weight.grad(&(y.clone() * y).sum().backward()).unwrap())
    };
    assert_same("shared", &[gradient()], &[with_reference(gradient)]);
}

#[test]
fn graphs_that_share_operands_are_differentiated_one_by_one() {
    let case = Case::new(2, 4, &[3, 5, 2]);
    let leaves = leaves::<B>(&case.values(1), DType::F32, &[true; 5]);
    let gradients = || {
        let [one, other] = [(); 2].map(|()| case.run(&leaves));
        let found = (one * 2.0 + other.clone() * other).sum().backward();
        leaves.iter().map(|leaf| read(leaf.grad(&found).unwrap())).collect::<Vec<_>>()
    };
    assert_same("shared", &gradients(), &with_reference(gradients));
}

#[test]
fn layers_that_do_not_fit_are_refused() {
    let device = Default::default();
    let x = || Tensor::<Flex, 3>::zeros([2, 3, 4], &device);
    let layer = |weight, bias: Option<usize>| LinearLayer::<Flex> {
        weight: Tensor::zeros(weight, &device),
        bias: bias.map(|length| Tensor::zeros([length], &device)),
    };
    let said = |layers: &[LinearLayer<Flex>]| refusal(|| linear_stack(x(), layers, Precision::F32));
    assert_eq!(said(&[]), "a stack of linear layers needs at least one");
    assert_eq!(
        said(&[layer([8, 5], None), layer([10, 0], None)]),
        "layer 1 has no inputs or no outputs"
    );
    assert_eq!(
        said(&[layer([8, 5], None), layer([5, 6], None)]),
        "layer 1 of 2 lanes with 5 features each needs a weight [10, o], found [5, 6]"
    );
    assert_eq!(
        said(&[layer([8, 5], Some(5))]),
        "layer 0 needs 10 values of bias, one an output of every lane, found 5"
    );
}
