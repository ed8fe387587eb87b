//! What needs one backend only.

use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::backend::{Autodiff, Flex};
use burn::tensor::{DType, Tensor};
use fewshot_kernels::{NormStatistics, batch_norm, conv2d, global_avg_pool, max_pool};

use super::case::{By, Case, Layer, Layout};
use super::run::*;
use crate::judge::{assert_close, largest, read, with_any_threads};

fn cases() -> Vec<Case> {
    let case =
        |layer, shapes: &[(&'static str, &[usize])]| Case::new(layer, Layout::Contiguous, shapes);
    let x: (_, &[usize]) = ("x", &[21, 33, 9, 8]);
    let convolution = |kernel: usize, stride| {
        let layer = Layer::Convolution { stride, padding: kernel / 2 };
        case(layer, &[x, ("weight", &[34, 33, kernel, kernel]), ("bias", &[34])])
    };
    let norm = Layer::Norm { running: false, epsilon: 1e-5 };
    vec![
        convolution(3, 1),
        convolution(3, 2),
        convolution(1, 1),
        case(norm, &[x, ("gamma", &[33]), ("beta", &[33])]),
        case(Layer::MaxPool, &[x]),
        case(Layer::Average, &[x]),
    ]
}

#[test]
fn checkpointing_changes_no_bit() {
    for case in cases() {
        let found =
            first::<Autodiff<Flex, BalancedCheckpointing>>(&case, By::Kernels, None, |_| true);
        assert!(found == first::<Autodiff<Flex>>(&case, By::Kernels, None, |_| true));
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for case in cases() {
        with_any_threads(&format!("{:?}", case.layer), || {
            let first = first::<Autodiff<Flex>>(&case, By::Kernels, None, |_| true);
            (first, second::<Autodiff<Flex>>(&case, By::Kernels, Outer::Direction, None))
        });
    }
}

#[test]
fn doubles_take_the_reference() {
    let device = Default::default();
    let x: Tensor<Flex, 4> =
        Tensor::random([2, 3, 6, 5], burn::tensor::Distribution::Default, &device);
    let weight = x.clone().slice([0..2, 0..3, 0..3, 0..3]);
    let double = x.clone().cast(DType::F64);
    let pairs = [
        (conv2d(x.clone(), weight.clone(), None, 1, 1), {
            conv2d(double.clone(), weight.cast(DType::F64), None, 1, 1)
        }),
        (
            batch_norm(x.clone(), None, None, NormStatistics::Batch, 1e-5).0,
            batch_norm(double.clone(), None, None, NormStatistics::Batch, 1e-5).0,
        ),
        (max_pool(x.clone()), max_pool(double.clone())),
        (global_avg_pool(x).reshape([2, 3, 1, 1]), global_avg_pool(double).reshape([2, 3, 1, 1])),
    ];
    for (single, double) in pairs {
        assert_eq!(double.dtype(), DType::F64);
        let (found, expected) = (read(single), read(double.cast(DType::F32)));
        assert_close("in double precision", &found, &expected, VALUES * largest(&expected));
    }
}

#[test]
fn a_nan_reaches_its_own_channel_and_its_neighbours_only() {
    let [n, c, h, w] = [2, 2, 8, 9];
    let mut values = vec![0.5f32; n * c * h * w];
    values[4 * w + 4] = f32::NAN;
    let x: Tensor<Flex, 4> = constant::<Flex>(&values).reshape([n, c, h, w]);
    let y = batch_norm(x.clone(), None, None, NormStatistics::Batch, 1e-5).0;
    for (i, value) in read(y).into_iter().enumerate() {
        assert_eq!(value.is_nan(), i / (h * w) % c == 0, "{i}");
    }
    let y = read(conv2d(x, Tensor::ones([1, c, 3, 3], &Default::default()), None, 1, 1));
    let nans = y.iter().filter(|value| value.is_nan()).count();
    assert_eq!(nans, 9);
}

#[test]
fn a_gradient_that_another_branch_holds_is_not_overwritten() {
    let shape = [3, 4, 6, 5];
    let layer = Layer::Norm { running: false, epsilon: 1e-5 };
    let case = Case::new(layer, Layout::Contiguous, &[("x", &shape)]);
    let weights = direction::<Autodiff<Flex>>(shape.iter().product(), 0);
    let [alone, residual] = [false, true].map(|residual| {
        let x = case.leaves::<Autodiff<Flex>>().remove(0).require_grad();
        let y = case.forward(By::Kernels, std::slice::from_ref(&x));
        let y = if residual { y + x.clone() } else { y };
        let gradient = x.grad(&(y * weights.clone()).sum().backward());
        gradient.expect("a gradient")
    });
    let expected = read(alone + weights.inner());
    assert_close("residual", &read(residual), &expected, 1e-5);
}

#[test]
fn moments_are_detached_at_both_levels() {
    let device = Default::default();
    let x = Tensor::<Autodiff<Flex>, 4>::random(
        [3, 2, 4, 4],
        burn::tensor::Distribution::Default,
        &device,
    );
    let x = x.require_grad();
    let lifted = Tensor::<Autodiff<Autodiff<Flex>>, 4>::from_inner(x.clone()).require_grad();
    let (y, moments) = batch_norm(lifted, None, None, NormStatistics::Batch, 1e-5);
    let moments = moments.unwrap();
    // What is tracked is taken times zero, so that there is a graph to go back through.
    let sum = (moments.mean + moments.variance).sum() + y.sum() * 0.0;
    let gradient = x.grad(&sum.inner().backward()).unwrap();
    assert!(read(gradient).iter().all(|value| *value == 0.0));
}
