//! The form on every host backend.

use burn::tensor::ops::FloatTensor;

use super::Depthwise;
use crate::conv2d::Role;
use crate::environment::chosen;
use crate::host::{HostBackend, elements, write_like};
use crate::registry::Runs;
use fewshot_simd::depthwise_maps::DepthwiseShape;

impl<H: HostBackend> Runs<Depthwise> for H {
    fn run(
        operands: [FloatTensor<H>; 2],
        &Depthwise { role, shape }: &Depthwise,
    ) -> FloatTensor<H> {
        let values = operands.each_ref().map(elements::<H>);
        let [first, second] = values.each_ref().map(|values| &**values);
        let (body, DepthwiseShape { n, channels, size, out, window, .. }) = (chosen(), shape);
        let (derivative, shape) = match role {
            Role::Output => (shape.output(body, first, second), [n, channels, out[0], out[1]]),
            Role::Input => (shape.input(body, first, second), [n, channels, size[0], size[1]]),
            Role::Weight => (shape.weight(body, first, second), [channels, 1, window, window]),
        };
        write_like::<H, 4>(&operands[0], derivative, shape)
    }
}
