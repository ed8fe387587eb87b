//! Tensors of what an operation computes on slices of a host.

use std::iter;

use burn::tensor::Shape;

use crate::host::{HostBackend, write_shape};
use crate::variadic_op::OptionalTensors;

/// The wanted values, of operands of these shapes, as tensors.
pub fn operand_tensors<H: HostBackend>(
    values: impl IntoIterator<Item = Option<Vec<f32>>>,
    requires_grad: &[bool],
    shape: impl Fn(usize) -> Shape,
    device: &H::Device,
) -> OptionalTensors<H> {
    // Operands at the end may be constants, for which there is no value.
    let values = values.into_iter().chain(iter::repeat_with(|| None));
    let each = values.zip(requires_grad).enumerate();
    let tensor = |(index, (values, &requires_grad)): (usize, (Option<Vec<f32>>, &bool))| {
        let values = values.filter(|_| requires_grad)?;
        Some(write_shape::<H>(values, shape(index), device))
    };
    each.map(tensor).collect()
}
