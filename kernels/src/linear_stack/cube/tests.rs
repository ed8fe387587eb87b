//! The passes on a device against those on a host.

use burn::backend::Flex;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, Tensor};

use super::*;
use crate::cube::runtimes;
use crate::host::{elements, unwrap, wrap, write_shape};
use crate::linear_stack::LinearLayer;
use crate::noise::Noise;

type Device<R> = CubeBackend<R, f32, i32, u32>;

fn drawn(noise: &mut Noise, shape: Shape) -> FloatTensor<Flex> {
    let values = noise.between(-0.7, 0.7, shape.num_elements());
    write_shape::<Flex>(values, shape, &Default::default())
}

fn lifted<R: CubeRuntime>(of: &FloatTensor<Flex>) -> CubeTensor<R> {
    // Passes look at no operand's rank.
    let flat = elements::<Flex>(of);
    unwrap(Tensor::<Device<R>, 1>::from_floats(&*flat, &Default::default()))
}

fn assert_close<R: CubeRuntime>(what: &str, found: &CubeTensor<R>, expected: &FloatTensor<Flex>) {
    let found: Vec<f32> =
        wrap::<Device<R>, 1>(found.clone()).into_data().into_vec().expect("floats");
    let expected = elements::<Flex>(expected);
    assert_eq!(found.len(), expected.len(), "{what}");
    let most = expected.iter().fold(1e-2f32, |most, value| most.max(value.abs()));
    for (place, (found, expected)) in found.iter().zip(&*expected).enumerate() {
        let error = (found - expected).abs() / most;
        assert!(error < 3e-6, "{what}[{place}] is {found}, not {expected}");
    }
}

/// Whatever a device finds is what a host does; it may leave out what is not wanted.
fn assert_all_close<R: CubeRuntime>(
    what: &str,
    found: &[Option<CubeTensor<R>>],
    expected: &[Option<FloatTensor<Flex>>],
    wanted: &[bool],
) {
    for (place, &wanted) in wanted.iter().enumerate().filter(|(_, wanted)| **wanted) {
        assert!(wanted && found[place].is_some(), "{what} {place} is wanted");
        let (found, expected) = (found[place].as_ref(), expected[place].as_ref());
        assert_close(&format!("{what} {place}"), found.expect("found"), expected.expect("found"));
    }
}

/// Lanes, examples, and widths from the inputs on.
fn call((lanes, examples, widths): &(usize, usize, Vec<usize>)) -> LinearCall {
    let device = Default::default();
    let layer = |sides: &[usize]| LinearLayer {
        weight: Tensor::<Flex, 2>::zeros([lanes * sides[0], sides[1]], &device),
        bias: Some(Tensor::<Flex, 1>::zeros([lanes * sides[1]], &device)),
    };
    let layers: Vec<_> = widths.windows(2).map(layer).collect();
    LinearCall::new([*lanes, *examples, widths[0]], &layers)
}

fn check<R: CubeRuntime>(call: &LinearCall, still: &[usize], wanted_x: bool) {
    let count = 2 * call.widths.len() - 1;
    let mut noise = Noise::new(count as u64);
    let mut drawn = |shape| drawn(&mut noise, shape);
    let operands: Vec<_> = (0..count).map(|place| drawn(call.operand_shape(place))).collect();
    let mut tangent =
        |place: usize| (!still.contains(&place)).then(|| drawn(call.operand_shape(place)));
    let tangents: Vec<_> = (0..count).map(&mut tangent).collect();
    let mut wanted = vec![true; count];
    wanted[0] = wanted_x;
    let [grad, grad_tangent] = [0; 2].map(|_| drawn(call.outputs().into()));

    let on_device: Vec<_> = operands.iter().map(lifted).collect();
    let device_tangents: Vec<_> = tangents.iter().map(|of| of.as_ref().map(lifted)).collect();
    let expected = TwiceDifferentiable::<Flex>::forward(call, &operands, true);
    let passed = TwiceDifferentiable::<Device<R>>::forward(call, &on_device, true);
    assert_close("result", &passed.result, &expected.result);
    let (flex, there) = (Default::default(), Default::default());
    let (saved, kept) = (expected.saved.expect("kept"), passed.saved.expect("kept"));
    let host =
        || PrimalTensors::<Flex, LinearCall> { saved: &saved, operands: &operands, device: &flex };
    let here = || PrimalTensors::<Device<R>, LinearCall> {
        saved: &kept,
        operands: &on_device,
        device: &there,
    };

    let (expected, intermediate_grads) =
        TwiceDifferentiable::<Flex>::vjp(call, host(), None, Some(&grad), &wanted, true);
    let (found, gradients) = TwiceDifferentiable::<Device<R>>::vjp(
        call,
        here(),
        None,
        Some(&lifted(&grad)),
        &wanted,
        true,
    );
    assert_all_close("gradient", &found, &expected, &wanted);

    let (expected, saved_tangent) = TwiceDifferentiable::<Flex>::jvp(call, host(), &tangents);
    let (found, saved) = TwiceDifferentiable::<Device<R>>::jvp(call, here(), &device_tangents);
    assert_close("result tangent", &found, &expected);

    let (intermediate_grads, gradients) =
        (intermediate_grads.expect("kept"), gradients.expect("kept"));
    for grad_tangent in [None, Some(grad_tangent)] {
        let tangent = TangentTensors::<Flex, LinearCall> {
            tangents: &tangents,
            saved_tangent: &saved_tangent,
            intermediate_grads: &intermediate_grads,
        };
        let (expected, _) = TwiceDifferentiable::<Flex>::vjp(
            call,
            host(),
            Some(tangent),
            grad_tangent.as_ref(),
            &wanted,
            false,
        );
        let tangent = TangentTensors::<Device<R>, LinearCall> {
            tangents: &device_tangents,
            saved_tangent: &saved,
            intermediate_grads: &gradients,
        };
        let grad_tangent = grad_tangent.as_ref().map(lifted);
        let (found, _) = TwiceDifferentiable::<Device<R>>::vjp(
            call,
            here(),
            Some(tangent),
            grad_tangent.as_ref(),
            &wanted,
            false,
        );
        assert_all_close("gradient tangent", &found, &expected, &wanted);
    }
}

mod laws {
    use super::*;

    pub fn every_pass_is_that_of_a_host<R: CubeRuntime>() {
        let shapes = [
            (1, 1, vec![1, 1]),
            (3, 5, vec![3, 40, 1]),
            (2, 17, vec![1, 40, 40, 1]),
            (1, 5, vec![70, 3, 66]),
            // Products of more than a tile, of which one has its totals in a tile of their own, and small ones.
            (2, 65, vec![34, 66, 2]),
            (1, 40, vec![64, 64]),
            // More tensors than a launch binds.
            (2, 3, vec![2, 3, 4, 3, 4, 2]),
        ];
        for shape in shapes {
            let call = call(&shape);
            check::<R>(&call, &[], true);
            check::<R>(&call, &[0], false);
            check::<R>(&call, &[0, 1], true);
        }
    }

    pub fn what_stands_still_changes_no_gradient<R: CubeRuntime>() {
        let call = call(&(2, 3, vec![2, 4, 3]));
        check::<R>(&call, &[1, 2, 3, 4], true);
        check::<R>(&call, &[0, 2, 3, 4], true);
    }
}

runtimes! { every_pass_is_that_of_a_host what_stands_still_changes_no_gradient }
