//! The passes on a device against those on a host.

use burn::backend::Flex;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, Tensor};

use super::*;
use crate::conv_stack::cpu::{BlockShape, StackShape};
use crate::cube::runtimes;
use crate::host::{elements, unwrap, wrap, write_shape};
use crate::noise::Noise;

type Device<R> = CubeBackend<R, f32, i32, u32>;

struct Case {
    lanes: usize,
    running: bool,
    /// Blocks with a bias.
    biased: bool,
    /// Whether the images and the biases have no tangent.
    still: bool,
    blocks: Vec<(usize, usize, bool)>,
}

impl Case {
    fn call(&self) -> StackCall {
        let block = |&(channels_out, stride, pool)| BlockShape { channels_out, stride, pool };
        let blocks: Vec<_> = self.blocks.iter().map(block).collect();
        StackCall {
            biased: vec![self.biased; blocks.len()],
            shape: StackShape { n: 3, c: 2, h: 13, w: 11, blocks },
            options: StackOptions { lanes: self.lanes, ..Default::default() },
            running: self.running,
        }
    }
}

fn drawn(noise: &mut Noise, shape: Shape, low: f32, high: f32) -> FloatTensor<Flex> {
    let values = noise.between(low, high, shape.num_elements());
    write_shape::<Flex>(values, pad(&shape).into(), &Default::default())
}

/// Four dimensions whatever the rank: passes look at no operand's rank.
fn pad(shape: &Shape) -> [usize; 4] {
    let mut padded = [1; 4];
    let rank = shape.num_dims();
    padded[4 - rank..].copy_from_slice(&shape.to_vec());
    padded
}

fn lifted<R: CubeRuntime>(of: &FloatTensor<Flex>) -> CubeTensor<R> {
    let data = wrap::<Flex, 4>(of.clone()).into_data();
    unwrap(Tensor::<Device<R>, 4>::from_data(data, &Default::default()))
}

fn read<R: CubeRuntime>(of: &CubeTensor<R>) -> Vec<f32> {
    wrap::<Device<R>, 1>(of.clone()).into_data().into_vec().expect("floats")
}

fn assert_close<R: CubeRuntime>(what: &str, found: &CubeTensor<R>, expected: &FloatTensor<Flex>) {
    let (found, expected) = (read(found), elements::<Flex>(expected));
    assert_eq!(found.len(), expected.len(), "{what}");
    let most = expected.iter().fold(1e-2f32, |most, value| most.max(value.abs()));
    for (place, (found, expected)) in found.iter().zip(&*expected).enumerate() {
        let error = (found - expected).abs() / most;
        assert!(error < 2e-5, "{what}[{place}] is {found}, not {expected}");
    }
}

fn assert_all_close<R: CubeRuntime>(
    what: &str,
    found: &[Option<CubeTensor<R>>],
    expected: &[Option<FloatTensor<Flex>>],
) {
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        match (found, expected) {
            (Some(found), Some(expected)) => {
                assert_close(&format!("{what} {place}"), found, expected)
            }
            (None, None) => {}
            _ => panic!("{what} {place} is there on one of both"),
        }
    }
}

fn check<R: CubeRuntime>(case: &Case) {
    let call = case.call();
    let count = 1 + 4 * call.shape.blocks.len();
    let operand = |place: usize| call.operand_shape(place);
    let mut noise = Noise::new(count as u64);
    let random = |noise: &mut Noise, place: usize| match place.checked_sub(1).map(|place| place % 4)
    {
        Some(2) => drawn(noise, operand(place), 0.5, 1.5),
        // As absent on a host.
        Some(1) if !case.biased => drawn(noise, operand(place), 0.0, 1e-30),
        _ => drawn(noise, operand(place), -0.6, 0.6),
    };
    let mut operands: Vec<_> = (0..count).map(|place| random(&mut noise, place)).collect();
    if case.running {
        for (channels, ..) in &case.blocks {
            let shape = || Shape::new([case.lanes * channels]);
            operands.extend(
                [(-0.3, 0.3), (0.5, 2.0)].map(|(low, high)| drawn(&mut noise, shape(), low, high)),
            );
        }
    }
    let has_tangent = |place: usize| match place {
        0 => !case.still,
        _ => case.biased || place % 4 != 2,
    };
    let tangents: Vec<_> = (0..operands.len())
        .map(|place| (place < count && has_tangent(place)).then(|| random(&mut noise, place)))
        .collect();
    let wanted: Vec<bool> = (0..operands.len()).map(|place| place < count).collect();
    let [grad, grad_tangent] = [0; 2].map(|_| drawn(&mut noise, call.features().into(), -1.0, 1.0));

    let device = Default::default();
    let on_host = TwiceDifferentiable::<Flex>::forward(&call, &operands, true);
    let saved = on_host.saved.as_ref().expect("kept");
    let primal =
        || PrimalTensors::<Flex, StackCall> { saved, operands: &operands, device: &device };
    let device_operands: Vec<_> = operands.iter().map(lifted).collect();
    let passed = TwiceDifferentiable::<Device<R>>::forward(&call, &device_operands, true);
    let there = Default::default();
    let here = || PrimalTensors::<Device<R>, StackCall> {
        saved: passed.saved.as_ref().expect("kept"),
        operands: &device_operands,
        device: &there,
    };
    assert_close("result", &passed.result, &on_host.result);
    assert_eq!(passed.aux.len(), on_host.aux.len());
    for (found, expected) in passed.aux.iter().zip(&on_host.aux) {
        assert_close("moments", found, expected);
    }

    let (expected, intermediate_grads) = host_vjp(&call, primal(), &grad, &wanted);
    let (found, kept) = TwiceDifferentiable::<Device<R>>::vjp(
        &call,
        here(),
        None,
        Some(&lifted(&grad)),
        &wanted,
        true,
    );
    assert_all_close("gradient", &found, &expected);

    let (expected, saved_tangent) = TwiceDifferentiable::<Flex>::jvp(&call, primal(), &tangents);
    let on_device: Vec<_> = tangents.iter().map(|of| of.as_ref().map(lifted)).collect();
    let (found, saved) = TwiceDifferentiable::<Device<R>>::jvp(&call, here(), &on_device);
    assert_close("result tangent", &found, &expected);

    for grad_tangent in [None, Some(grad_tangent)] {
        let tangent = TangentTensors::<Flex, StackCall> {
            tangents: &tangents,
            saved_tangent: &saved_tangent,
            intermediate_grads: &intermediate_grads,
        };
        let (expected, _) = TwiceDifferentiable::<Flex>::vjp(
            &call,
            primal(),
            Some(tangent),
            grad_tangent.as_ref(),
            &wanted,
            false,
        );
        let tangent = TangentTensors::<Device<R>, StackCall> {
            tangents: &on_device,
            saved_tangent: &saved,
            intermediate_grads: kept.as_ref().expect("kept"),
        };
        let grad_tangent = grad_tangent.as_ref().map(lifted);
        let (found, _) = TwiceDifferentiable::<Device<R>>::vjp(
            &call,
            here(),
            Some(tangent),
            grad_tangent.as_ref(),
            &wanted,
            false,
        );
        assert_all_close("gradient tangent", &found, &expected);
    }
}

type HostIntermediateGrads = <StackCall as TwiceDifferentiable<Flex>>::IntermediateGrads;

fn host_vjp(
    call: &StackCall,
    primal: PrimalTensors<'_, Flex, StackCall>,
    grad: &FloatTensor<Flex>,
    wanted: &[bool],
) -> (OptionalTensors<Flex>, HostIntermediateGrads) {
    let (found, intermediate_grads) =
        TwiceDifferentiable::<Flex>::vjp(call, primal, None, Some(grad), wanted, true);
    (found, intermediate_grads.expect("kept"))
}

mod laws {
    use super::*;

    pub fn every_pass_is_that_of_a_host<R: CubeRuntime>() {
        let pooled = vec![(5, 1, true), (4, 1, true)];
        let strided = vec![(3, 2, false), (6, 2, false), (2, 1, false)];
        for blocks in [pooled, strided] {
            for (lanes, running, biased, still) in [
                (1, false, false, true),
                (2, false, true, false),
                (1, true, true, false),
                (3, true, false, true),
            ] {
                check::<R>(&Case { lanes, running, biased, still, blocks: blocks.clone() });
            }
        }
    }

    pub fn what_is_not_wanted_is_not_found<R: CubeRuntime>() {
        let case = Case {
            lanes: 1,
            running: false,
            biased: false,
            still: true,
            blocks: vec![(2, 1, true), (3, 1, false)],
        };
        let call = case.call();
        let mut noise = Noise::new(1);
        let operand = |place| lifted(&drawn(&mut noise, call.operand_shape(place), 0.1, 1.0));
        let operands: Vec<_> = (0..9).map(operand).collect();
        let passed = TwiceDifferentiable::<Device<R>>::forward(&call, &operands, true);
        let device = Default::default();
        let primal = PrimalTensors::<Device<R>, StackCall> {
            saved: passed.saved.as_ref().expect("kept"),
            operands: &operands,
            device: &device,
        };
        let wanted = [false, false, false, false, false, false, false, true, true];
        let (found, intermediate_grads) = TwiceDifferentiable::<Device<R>>::vjp(
            &call,
            primal,
            None,
            Some(&passed.result),
            &wanted,
            false,
        );
        let found: Vec<bool> = found.iter().map(Option::is_some).collect();
        assert_eq!(found, wanted);
        assert!(intermediate_grads.is_none());
    }
}

runtimes! { every_pass_is_that_of_a_host what_is_not_wanted_is_not_found }
