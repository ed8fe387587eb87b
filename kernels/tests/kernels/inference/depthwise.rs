//! What holds on every backend.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::{Autodiff, Flex};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{FusedConvOptions, depthwise, depthwise_conv2d, with_reference};

use crate::judge::{assert_close, read};
use crate::numbers::Numbers;

const BOUNDS: [f32; 2] = [0.0, 6.0];

fn drawn<B: Backend, const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<B, D> {
    Tensor::from_data(Numbers(seed).data(shape, |x| x), &Default::default())
}

fn mapped<B: Backend>(shape: [usize; 4], window: usize, options: FusedConvOptions) -> Tensor<B, 4> {
    let channels = shape[1];
    let map = [drawn::<B, 1>(3, [channels]), drawn(4, [channels])];
    depthwise_conv2d(drawn(1, shape), drawn(2, [channels, 1, window, window]), map, options)
}

pub fn depthwise_maps_are_those_of_plain_operations<B: Backend>() {
    for window in [1, 3, 5, 7] {
        let side = window / 2;
        for (stride, padding) in
            [(1, [side; 4]), (2, [side; 4]), (2, [0, 0, side, side]), (1, [0; 4])]
        {
            for shape in [[1, 1, 7, 7], [2, 5, 9, 33], [2, 32, 28, 14]] {
                let options = FusedConvOptions { stride, padding, bounds: BOUNDS };
                let wanted = with_reference(|| read(mapped::<Flex>(shape, window, options)));
                let what = format!("{shape:?} {window} {options:?}");
                let found = read(mapped::<B>(shape, window, options));
                assert_close(&what, &found, &wanted, 1e-4);
                assert!(found.iter().all(|value| (0.0..=6.0).contains(value)), "{what}: bounds");
            }
        }
    }
}

pub fn depthwise_maps_of_no_image_and_no_channel_are_empty<B: Backend>() {
    let options = FusedConvOptions { stride: 2, padding: [1; 4], bounds: BOUNDS };
    assert_eq!(mapped::<B>([0, 3, 8, 8], 3, options).dims(), [0, 3, 4, 4]);
    assert_eq!(mapped::<B>([2, 0, 8, 8], 3, options).dims(), [2, 0, 4, 4]);
}

pub fn depthwise_gradients_flow_under_autodiff<B: Backend>() {
    let options = FusedConvOptions { stride: 1, padding: [1; 4], bounds: [-1e9, 1e9] };
    let x = drawn::<Autodiff<B>, 4>(1, [1, 2, 4, 4]).require_grad();
    let ones = || Tensor::ones([2, 1, 3, 3], &Default::default());
    let map = [[2.0f32, 3.0], [0.0, 0.0]].map(|of| Tensor::from_data(of, &Default::default()));
    let y = depthwise_conv2d(x.clone(), ones(), map, options);
    let found = x.grad(&y.sum().backward()).expect("tracked");
    // A pixel is in as many windows as it has neighbours, itself among them.
    let windows = [4.0, 6.0, 6.0, 4.0, 6.0, 9.0, 9.0, 6.0, 6.0, 9.0, 9.0, 6.0, 4.0, 6.0, 6.0, 4.0];
    let wanted: Vec<f32> = [2.0, 3.0].iter().flat_map(|by| windows.map(|of| by * of)).collect();
    assert_close("gradient", &read(found), &wanted, 1e-4);
}

pub fn depthwise_shapes_that_do_not_fit_are_refused<B: Backend>() {
    let usual = FusedConvOptions { stride: 1, padding: [1; 4], bounds: BOUNDS };
    let wrong = [
        (usual, [1, 2, 0, 4], "pixels"),
        (FusedConvOptions { stride: 3, ..usual }, [1, 2, 4, 4], "stride"),
        (FusedConvOptions { padding: [3, 0, 0, 0], ..usual }, [1, 2, 4, 4], "fewer zeros"),
        (FusedConvOptions { padding: [0; 4], ..usual }, [1, 2, 2, 4], "smaller than a window"),
        (FusedConvOptions { bounds: [1.0, 0.0], ..usual }, [1, 2, 4, 4], "bounds"),
    ];
    for (options, shape, said) in wrong {
        let call = || {
            let map =
                [Tensor::ones([2], &Default::default()), Tensor::zeros([2], &Default::default())];
            let filters = Tensor::<B, 4>::ones([2, 1, 3, 3], &Default::default());
            // Zeros of no elements would be a launch of no blocks.
            depthwise_conv2d(Tensor::empty(shape, &Default::default()), filters, map, options)
        };
        let error = catch_unwind(AssertUnwindSafe(call)).expect_err("refused");
        let text = error.downcast_ref::<String>().expect("a message");
        assert!(text.contains(said), "{text}");
    }
}

/// Outputs, first gradients by the maps and the filters, and the gradients of the sum of their squares.
fn differentiated<B: Backend>(
    shape: [usize; 4],
    window: usize,
    (stride, padding): (usize, [usize; 4]),
) -> [Vec<f32>; 5] {
    type Twice<B> = Autodiff<Autodiff<B>>;
    let x = drawn::<Autodiff<B>, 4>(1, shape).require_grad();
    let filters = drawn::<Autodiff<B>, 4>(2, [shape[1], 1, window, window]).require_grad();
    let inner =
        [&x, &filters].map(|of| Tensor::<Twice<B>, 4>::from_inner(of.clone()).require_grad());
    let y = depthwise(inner[0].clone(), inner[1].clone(), stride, padding);
    let outputs = read(y.clone().inner().inner());
    // The square makes the gradient depend on both.
    let gradients = y.powi_scalar(2).sum().backward();
    let firsts = inner.map(|of| of.grad(&gradients).expect("tracked"));
    let squares = firsts.iter().map(|of| of.clone().powi_scalar(2).sum());
    let second = squares.reduce(|a, b| a + b).expect("two of them").backward();
    let seconds = [x, filters].map(|of| read(of.grad(&second).expect("tracked")));
    let [by_x, by_filters] = firsts.map(|of| read(of.inner()));
    let [second_by_x, second_by_filters] = seconds;
    [outputs, by_x, by_filters, second_by_x, second_by_filters]
}

pub fn depthwise_layers_and_both_derivatives_are_those_of_plain_operations<B: Backend>() {
    for window in [3, 5] {
        let side = window / 2;
        for way in [(1, [side; 4]), (2, [side; 4]), (2, [0, 0, side, side]), (1, [0; 4])] {
            for shape in [[1, 1, 7, 7], [2, 5, 9, 19], [3, 32, 14, 8]] {
                let expected = with_reference(|| differentiated::<Flex>(shape, window, way));
                let actual = differentiated::<B>(shape, window, way);
                for (part, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                    let most = expected.iter().fold(1.0f32, |most, value| most.max(value.abs()));
                    let scaled =
                        |of: &[f32]| of.iter().map(|value| value / most).collect::<Vec<_>>();
                    let name = format!("part {part} of {shape:?} {window} {way:?}");
                    assert_close(&name, &scaled(actual), &scaled(expected), 1e-5);
                }
            }
        }
    }
}
