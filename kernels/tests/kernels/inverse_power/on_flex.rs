//! What needs one backend only.

use burn::backend::{Autodiff, Flex};
use burn::tensor::{DType, Tensor};
use fewshot_kernels::{inverse_power, with_reference};

use crate::refusal::refusal;

#[test]
fn other_types_take_the_reference() {
    let run = || {
        let x = Tensor::<Flex, 2>::from_data([[3.0, 4.0]], &Default::default()).cast(DType::F64);
        let (inverse, mean) = inverse_power(x, None, 2.0);
        [inverse, mean].map(Tensor::into_data)
    };
    let found = run();
    assert_eq!(found[0].dtype, DType::F64);
    assert_eq!(found, with_reference(run));
}

#[test]
fn gradients_flow_through_both_results() {
    let x = Tensor::<Autodiff<Flex>, 2>::from_data([[3.0, 4.0]], &Default::default());
    let x = x.require_grad();
    let (inverse, mean) = inverse_power(x.clone(), None, 2.0);
    let gradients = (inverse * 625.0 + mean).sum().backward();
    // -2 x 625 / 25^2 + 2 x
    let found = x.grad(&gradients).unwrap().into_data();
    found.assert_approx_eq::<f32>(&[[0.0, 0.0]].into(), burn::tensor::Tolerance::absolute(1e-4));
}

#[test]
fn what_does_not_fit_is_refused() {
    let x = |examples| Tensor::<Flex, 2>::ones([examples, 3], &Default::default());
    let said = refusal(|| inverse_power(x(0), None, 2.0));
    assert_eq!(said, "inputs have a power, 0 examples do not");
    let two = Some(Tensor::ones([2], &Default::default()));
    let said = refusal(|| inverse_power(x(1), two, 2.0));
    assert_eq!(said, "a running mean is one number, found 2");
    for tau in [0.0, 0.999, -3.0, f64::NAN, f64::INFINITY] {
        let said = refusal(|| inverse_power(x(1), None, tau));
        let wanted = "a running mean follows within a number of calls from 1 on, found";
        assert_eq!(said, format!("{wanted} {tau}"));
    }
}
