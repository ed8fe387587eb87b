//! The convolution of a host backend.

use burn::tensor::ops::FloatTensor;

use super::cpu;
use super::shape::{ConvShape, Role};
use crate::host::{HostBackend, elements, write_like};

pub fn convolution<B: HostBackend>(
    wanted: Role,
    [first, second]: [FloatTensor<B>; 2],
    shape: &ConvShape,
) -> FloatTensor<B> {
    let operands = [&*elements::<B>(&first), &*elements::<B>(&second)];
    let found = cpu::derivative(wanted, shape, operands);
    write_like::<B, 4>(&first, found, shape.of(wanted))
}
