//! The passes on a device against those on a host.

use burn::backend::Flex;
use burn::tensor::Tensor;

use super::*;
use crate::cube::runtimes;
use crate::linear_stack::LinearLayer;
use crate::noise::Noise;
use crate::twice_differentiable::on_device::{Passes, drawn};

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

fn check<R: CubeRuntime>(call: &LinearCall, still: &[usize], x_requires_grad: bool) {
    let count = 2 * call.widths.len() - 1;
    let mut noise = Noise::new(count as u64);
    let mut drawn = |shape| drawn(&mut noise, shape, [-0.7, 0.7]);
    let operands = (0..count).map(|place| drawn(call.operand_shape(place))).collect();
    let mut tangent =
        |place: usize| (!still.contains(&place)).then(|| drawn(call.operand_shape(place)));
    let tangents = (0..count).map(&mut tangent).collect();
    let mut requires_grad = vec![true; count];
    requires_grad[0] = x_requires_grad;
    let [grad, grad_tangent] = [0; 2].map(|_| drawn(call.outputs().into()));
    let (call, bound) = (call.clone(), 3e-6);
    Passes { call, operands, tangents, requires_grad, grad, grad_tangent, bound }.check::<R>();
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
