//! The passes on a device against those on a host.

use burn::tensor::Shape;

use super::*;
use crate::conv_stack::cpu::{BlockShape, StackShape};
use crate::cube::runtimes;
use crate::noise::Noise;
use crate::twice_differentiable::on_device::{Device, Passes, drawn, lifted};

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

fn check<R: CubeRuntime>(case: &Case) {
    let call = case.call();
    let count = 1 + 4 * call.shape.blocks.len();
    let mut noise = Noise::new(count as u64);
    let random = |noise: &mut Noise, place: usize| {
        let between = match place.checked_sub(1).map(|place| place % 4) {
            Some(2) => [0.5, 1.5],
            // As absent on a host.
            Some(1) if !case.biased => [0.0, 1e-30],
            _ => [-0.6, 0.6],
        };
        drawn(noise, call.operand_shape(place), between)
    };
    let mut operands: Vec<_> = (0..count).map(|place| random(&mut noise, place)).collect();
    if case.running {
        for (channels, ..) in &case.blocks {
            let shape = || Shape::new([case.lanes * channels]);
            let moments = [[-0.3, 0.3], [0.5, 2.0]];
            operands.extend(moments.map(|between| drawn(&mut noise, shape(), between)));
        }
    }
    let has_tangent = |place: usize| match place {
        0 => !case.still,
        _ => case.biased || place % 4 != 2,
    };
    let tangents = (0..operands.len())
        .map(|place| (place < count && has_tangent(place)).then(|| random(&mut noise, place)))
        .collect();
    let requires_grad = (0..operands.len()).map(|place| place < count).collect();
    let [grad, grad_tangent] =
        [0; 2].map(|_| drawn(&mut noise, call.features().into(), [-1.0, 1.0]));
    Passes { call, operands, tangents, requires_grad, grad, grad_tangent, bound: 2e-5 }
        .check::<R>();
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
        let operand = |place| lifted(&drawn(&mut noise, call.operand_shape(place), [0.1, 1.0]));
        let operands: Vec<_> = (0..9).map(operand).collect();
        let passed = TwiceDifferentiable::<Device<R>>::forward(&call, &operands, true);
        let device = Default::default();
        let primal = PrimalTensors::<Device<R>, StackCall> {
            saved: passed.saved.as_ref().expect("kept"),
            operands: &operands,
            device: &device,
        };
        let requires_grad = [false, false, false, false, false, false, false, true, true];
        let (gradients, intermediate_grads) = TwiceDifferentiable::<Device<R>>::vjp(
            &call,
            primal,
            None,
            Some(&passed.result),
            &requires_grad,
            false,
        );
        let gradients: Vec<bool> = gradients.iter().map(Option::is_some).collect();
        assert_eq!(gradients, requires_grad);
        assert!(intermediate_grads.is_none());
    }
}

runtimes! { every_pass_is_that_of_a_host what_is_not_wanted_is_not_found }
