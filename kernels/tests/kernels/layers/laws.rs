//! What holds on every backend.

use burn::backend::Autodiff;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use fewshot_kernels::{Route, max_pool, overlapping_max_pool, route};

use super::case::{By, Case, Layer, Layout};
pub use super::differences::gradients_are_central_differences;
use super::golden::Golden;
pub use super::low::*;
use super::run::*;
use crate::judge::{assert_close, largest, read};

pub fn layers_are_fused_under_up_to_two_levels_of_autodiff<B: AutodiffBackend>() {
    for route in [route::<B::InnerBackend>(), route::<B>(), route::<Autodiff<B>>()] {
        assert!(matches!(route, Route::Host(_) | Route::Device(_)), "{route}");
    }
    assert_eq!(route::<Autodiff<Autodiff<B>>>(), Route::Reference);
}

pub fn values_and_gradients_are_those_of_pytorch<B: AutodiffBackend>() {
    let golden = Golden::read();
    for (name, case) in golden.cases() {
        let weights = golden.values(&format!("{name}/output_gradient"));
        let found = first::<B>(&case, By::Kernels, Some(&weights), |_| true);
        let names: Vec<_> = case.operands.iter().map(|operand| operand.name).collect();
        let output = golden.values(&format!("{name}/output"));
        let expected = golden.outcome(&format!("{name}/gradient"), output, &names);
        assert_outcome(&name, &found, &expected, [VALUES, GRADIENTS]);
    }
}

pub fn second_gradients_are_those_of_pytorch<B: AutodiffBackend>() {
    let golden = Golden::read();
    for (name, case) in golden.cases() {
        let weights = golden.values(&format!("{name}/output_gradient"));
        let found = second::<B>(&case, By::Kernels, Outer::Squares, Some(&weights));
        let names: Vec<_> = case.operands.iter().map(|operand| operand.name).collect();
        let firsts = names.iter().flat_map(|of| golden.values(&format!("{name}/gradient/{of}")));
        let firsts = firsts.collect();
        let names = [&names[..], &["output_gradient"]].concat();
        let expected = golden.outcome(&format!("{name}/second"), firsts, &names);
        assert_outcome(&name, &found, &expected, [GRADIENTS, SECOND]);
    }
}

pub fn convolution(
    layout: Layout,
    x: [usize; 4],
    out: usize,
    kernel: usize,
    (stride, padding): (usize, usize),
) -> Case {
    let layer = Layer::Convolution { stride, padding };
    let weight = [out, x[1], kernel, kernel];
    Case::new(layer, layout, &[("x", &x), ("weight", &weight), ("bias", &[out])])
}

pub fn convolutions_equal_the_reference<B: AutodiffBackend>() {
    let shapes = [
        ([3, 1, 7, 6], 33),
        ([2, 31, 5, 5], 1),
        ([1, 33, 9, 8], 40),
        ([9, 5, 1, 1], 3),
        ([2, 3, 1, 6], 4),
        ([17, 2, 5, 3], 16),
        ([10, 32, 8, 7], 32),
    ];
    for (x, out) in shapes {
        for (kernel, padding) in [(3, 1), (1, 0)] {
            for stride in [1, 2] {
                let mut case = convolution(Layout::Contiguous, x, out, kernel, (stride, padding));
                assert_equal_to_judge::<B>(&case);
                case.operands.truncate(2);
                assert_equal_to_judge::<B>(&case);
            }
        }
    }
}

pub fn other_windows_take_the_reference<B: AutodiffBackend>() {
    // Square images with a stride that leaves nothing over: all that Candle differentiates.
    for (kernel, stride, padding) in [(5, 1, 2), (3, 1, 0), (2, 2, 0), (1, 1, 1)] {
        let case = convolution(Layout::Contiguous, [2, 3, 6, 6], 4, kernel, (stride, padding));
        assert_equal_to_judge::<B>(&case);
    }
}

pub fn norm(layout: Layout, x: [usize; 4], running: bool) -> Case {
    let layer = Layer::Norm { running, epsilon: 1e-5 };
    let vector = [x[1]];
    Case::new(layer, layout, &[("x", &x), ("gamma", &vector), ("beta", &vector)])
}

pub fn normalisations_equal_the_reference<B: AutodiffBackend>() {
    let shapes =
        [[3, 1, 5, 7], [2, 31, 3, 3], [4, 33, 6, 4], [1, 3, 9, 11], [9, 5, 1, 1], [2, 2, 70, 70]];
    for x in shapes {
        for running in [false, true] {
            with_and_without_parameters::<B>(norm(Layout::Contiguous, x, running));
        }
    }
}

/// Of a normalisation: also without gains and without both; on a device, which compiles each way, for two shapes.
fn with_and_without_parameters<B: AutodiffBackend>(mut case: Case) {
    assert_equal_to_judge::<B>(&case);
    let on_host = matches!(route::<B>(), Route::Host(_));
    if on_host || [3, 4].contains(&case.operands[0].shape[0]) {
        case.operands.remove(1);
        assert_equal_to_judge::<B>(&case);
        case.operands.pop();
        assert_equal_to_judge::<B>(&case);
    }
}

pub fn norm_relu(layout: Layout, x: [usize; 4], running: bool, pool: bool) -> Case {
    let layer = Layer::NormRelu { running, epsilon: 1e-5, pool };
    Case { layer, ..norm(layout, x, running) }
}

pub fn rectified_normalisations_equal_the_reference<B: AutodiffBackend>() {
    let shapes = [[3, 1, 5, 7], [2, 31, 3, 3], [4, 33, 6, 4], [1, 3, 9, 11], [2, 2, 70, 69]];
    for x in shapes {
        for (running, pool) in [(false, false), (false, true), (true, false), (true, true)] {
            with_and_without_parameters::<B>(norm_relu(Layout::Contiguous, x, running, pool));
        }
    }
    for (x, pool) in [([9, 5, 1, 1], false), ([9, 5, 2, 2], true), ([7, 2, 1, 6], false)] {
        assert_equal_to_judge::<B>(&norm_relu(Layout::Contiguous, x, false, pool));
    }
    // Negative gains take the smallest of a window, zero ones the first.
    let gamma = [-1.5, 0.0, 1e-12, -0.0, 2.0, -1e-3];
    for running in [false, true] {
        let case = norm_relu(Layout::Contiguous, [4, 6, 5, 4], running, true);
        assert_equal_to_judge::<B>(&case.with("gamma", |i, _| gamma[i]));
    }
    for layout in [Layout::Permuted, Layout::Expanded] {
        assert_equal_to_judge::<B>(&norm_relu(layout, [3, 4, 6, 5], false, true));
        assert_equal_to_judge::<B>(&norm_relu(layout, [3, 4, 6, 5], true, false));
    }
}

pub fn extreme_gains_equal_the_reference<B: AutodiffBackend>() {
    let gamma = [-1.5, 0.0, 1e-12, -0.0, 2.0, -1e-3];
    for running in [false, true] {
        let case = norm(Layout::Contiguous, [4, 6, 5, 4], running).with("gamma", |i, _| gamma[i]);
        assert_equal_to_judge::<B>(&case);
    }
}

pub fn constant_channels_equal_the_reference<B: AutodiffBackend>() {
    let plane = 5 * 4;
    let constant = |i: usize, value| if i / plane % 3 == 1 { 0.7 } else { value };
    let case = norm(Layout::Contiguous, [4, 3, 5, 4], false).with("x", constant);
    assert_equal_to_judge::<B>(&case);
    // One pixel of one image is its own mean.
    let case = norm(Layout::Contiguous, [1, 3, 1, 1], false);
    let found = first::<B>(&case, By::Kernels, None, |_| true);
    assert_close("alone", &found.output, &case.operands[2].values, 1e-6);
    assert_eq!(found.gradients[0].1, [0.0; 3]);
}

pub fn plain(layer: Layer, layout: Layout, x: [usize; 4]) -> Case {
    Case::new(layer, layout, &[("x", &x)])
}

pub fn pools_and_averages_equal_the_reference<B: AutodiffBackend>() {
    for x in [[1, 1, 2, 2], [3, 31, 5, 7], [2, 33, 4, 6], [9, 2, 7, 2], [1, 2, 71, 66]] {
        for layer in [Layer::MaxPool, Layer::OverlappingMaxPool, Layer::Average] {
            assert_equal_to_judge::<B>(&plain(layer, Layout::Contiguous, x));
        }
        let lanes = if x[1] % 3 == 0 { 3 } else { x[1] };
        let averages = Layer::AverageOfLanes(lanes);
        assert_equal_to_judge::<B>(&plain(averages, Layout::Contiguous, x));
        // Three values only: most windows have equal ones.
        for layer in [Layer::MaxPool, Layer::OverlappingMaxPool] {
            let ties = plain(layer, Layout::Contiguous, x).with("x", |_, v| v.round());
            assert_equal_to_judge::<B>(&ties);
        }
    }
    for layer in [Layer::OverlappingMaxPool, Layer::Average] {
        assert_equal_to_judge::<B>(&plain(layer, Layout::Contiguous, [3, 5, 1, 1]));
    }
}

pub fn leaky_relus_equal_the_reference<B: AutodiffBackend>() {
    for (slope, layout) in
        [0.0, 0.1, 1.0].into_iter().zip([Layout::Contiguous, Layout::Permuted, Layout::Expanded])
    {
        for x in [[1, 1, 1, 7], [3, 5, 7, 6], [2, 40, 21, 21]] {
            let layer = Layer::LeakyRelu { slope };
            // A fifth of the values are zero, at which the slope is that below.
            let zeros = |i: usize, value| if i.is_multiple_of(5) { 0.0 } else { value };
            assert_equal_to_judge::<B>(&plain(layer, layout, x).with("x", zeros));
        }
    }
    for x in [[1, 1, 1, 7], [2, 40, 21, 21]] {
        // Every fifth value is at a bound, where the slope is zero.
        let bounds = |i: usize, value: f32| match i % 10 {
            0 => 0.0,
            5 => 6.0,
            _ => 4.0 * value,
        };
        let case = plain(Layer::Relu6, Layout::Contiguous, x).with("x", bounds);
        assert_equal_to_judge::<B>(&case);
        let actual = read(case.forward(By::Kernels, &case.leaves::<B::InnerBackend>()));
        assert!(actual.iter().all(|value| (0.0..=6.0).contains(value)));
    }
    let case = plain(Layer::Relu6, Layout::Contiguous, [1, 1, 2, 2]);
    let case = case.with("x", |i, _| [f32::NAN, 7.0, -2.0, f32::INFINITY][i]);
    let actual = read(case.forward(By::Kernels, &case.leaves::<B::InnerBackend>()));
    assert!(actual[0].is_nan());
    assert_eq!(actual[1..], [6.0, 0.0, 6.0]);
    let case = plain(Layer::LeakyRelu { slope: 0.1 }, Layout::Contiguous, [1, 1, 2, 2]);
    let case = case.with("x", |i, _| [f32::NAN, 2.0, -2.0, f32::NEG_INFINITY][i]);
    let found = read(case.forward(By::Kernels, &case.leaves::<B::InnerBackend>()));
    assert!(found[0].is_nan());
    assert_eq!(found[1..], [2.0, -0.2, f32::NEG_INFINITY]);
}

pub fn linear_layers_equal_the_reference<B: AutodiffBackend>() {
    let mut case = Case::new(
        Layer::Linear,
        Layout::Contiguous,
        &[("x", &[5, 7]), ("weight", &[7, 3]), ("bias", &[3])],
    );
    assert_equal_to_judge::<B>(&case);
    case.operands.pop();
    assert_equal_to_judge::<B>(&case);
}

pub fn permuted_and_expanded_operands_equal_the_reference<B: AutodiffBackend>() {
    for layout in [Layout::Permuted, Layout::Expanded] {
        let x = [3, 4, 6, 5];
        for (kernel, stride) in [(3, 1), (3, 2), (1, 1), (1, 2)] {
            let steps = (stride, kernel / 2);
            assert_equal_to_judge::<B>(&convolution(layout, x, 7, kernel, steps));
        }
        assert_equal_to_judge::<B>(&norm(layout, x, false));
        assert_equal_to_judge::<B>(&norm(layout, x, true));
        assert_equal_to_judge::<B>(&plain(Layer::MaxPool, layout, x));
        assert_equal_to_judge::<B>(&plain(Layer::OverlappingMaxPool, layout, x));
        assert_equal_to_judge::<B>(&plain(Layer::Average, layout, x));
    }
}

pub fn frozen_operands_have_no_gradient_and_change_no_other<B: AutodiffBackend>() {
    for case in [
        convolution(Layout::Contiguous, [3, 4, 6, 5], 7, 3, (1, 1)),
        norm(Layout::Contiguous, [3, 4, 6, 5], false),
        norm(Layout::Contiguous, [3, 4, 6, 5], true),
        norm_relu(Layout::Contiguous, [3, 4, 6, 5], false, true),
        norm_relu(Layout::Contiguous, [3, 4, 6, 5], true, false),
    ] {
        let mut all = first::<B>(&case, By::Kernels, None, |_| true);
        assert_eq!(all.gradients.len(), 3);
        for (name, gradient) in all.gradients.drain(..) {
            let one = first::<B>(&case, By::Kernels, None, |tracked| tracked == name);
            assert_eq!(one.output, all.output);
            assert_eq!(one.gradients, [(name, gradient)]);
        }
    }
}

pub fn a_nan_reaches_every_pool_that_holds_it<B: AutodiffBackend>() {
    for place in [0, 1, 4, 5] {
        let case = plain(Layer::MaxPool, Layout::Contiguous, [1, 2, 4, 4]);
        let case = case.with("x", |i, value| if i == place { f32::NAN } else { value });
        let x = case.leaves::<B::InnerBackend>().remove(0).reshape([1, 2, 4, 4]);
        let nans =
            |pooled| read(pooled).iter().map(|value: &f32| value.is_nan()).collect::<Vec<_>>();
        assert_eq!(
            nans(max_pool(x.clone())),
            [true, false, false, false, false, false, false, false]
        );
        // An odd row or column is in two windows.
        let (down, right) = (place >= 4, place % 4 == 1);
        let expected = [true, right, down, down && right, false, false, false, false];
        assert_eq!(nans(overlapping_max_pool(x)), expected);
    }
}

pub fn a_nan_goes_through_the_relu_after_a_normalisation<B: AutodiffBackend>() {
    for (place, pool, wanted) in [(0, true, 0), (5, true, 0), (5, false, 5)] {
        let case = norm_relu(Layout::Contiguous, [1, 2, 4, 4], true, pool);
        let case = case.with("x", |i, value| if i == place { f32::NAN } else { value });
        let found = read(case.forward(By::Kernels, &case.leaves::<B::InnerBackend>()));
        let nans = found.iter().enumerate().filter(|(_, value)| value.is_nan());
        assert_eq!(nans.map(|(place, _)| place).collect::<Vec<_>>(), [wanted]);
    }
}

pub fn moments_are_those_of_the_batch_and_detached<B: AutodiffBackend>() {
    // A mean far from zero: squares minus the square of the mean would have no digits.
    let case = norm(Layout::Contiguous, [5, 3, 8, 9], false).with("x", |_, v| 1000.0 + v);
    let leaves: Vec<_> = case.leaves::<B>().into_iter().map(Tensor::require_grad).collect();
    let (y, moments) = case.normalised(By::Kernels, &leaves);
    let moments = moments.expect("the batch has moments");
    let (plane, x) = (8 * 9, &case.operands[0].values);
    for c in 0..3 {
        let channel = || (0..5).flat_map(|n| &x[(n * 3 + c) * plane..][..plane]);
        let mean = channel().map(|&v| f64::from(v)).sum::<f64>() / (5 * plane) as f64;
        let squares = channel().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>();
        let [found_mean, variance] = [&moments.mean, &moments.variance].map(|m| read(m.clone())[c]);
        assert!((f64::from(found_mean) - mean).abs() < 1e-4, "{found_mean}, not {mean}");
        let expected = squares / (5 * plane) as f64;
        assert!((f64::from(variance) / expected - 1.0).abs() < 1e-5, "{variance}, not {expected}");
    }
    // Their share of the gradient would show.
    let loss = y.sum() + (moments.mean.sum() + moments.variance.sum()) * 1000.0;
    let gradient = leaves[0].grad(&loss.backward()).expect("a gradient");
    assert!(largest(&read(gradient)) < 1e-2);
    let running = norm(Layout::Contiguous, [2, 3, 4, 4], true);
    assert!(running.normalised(By::Kernels, &running.leaves::<B>()).1.is_none());
}
