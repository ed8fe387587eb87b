//! The statistics of every host backend.

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;

use super::cpu;
use crate::cpu::instruction_set;
use crate::host::{HostBackend, elements, into_elements, write_shape};

/// Every gradient times `factor`, and the sum of all squares of the result.
pub fn grad_stats<B: HostBackend>(
    gradients: Vec<FloatTensor<B>>,
    factor: f64,
) -> (Vec<FloatTensor<B>>, f64) {
    let body = instruction_set::chosen();
    if factor == 1.0 {
        let read: Vec<_> = gradients.iter().map(elements::<B>).collect();
        let squares = cpu::squares(body, &read);
        drop(read);
        return (gradients, squares);
    }
    let places: Vec<_> =
        gradients.iter().map(|tensor| (tensor.shape(), B::float_device(tensor))).collect();
    let mut scaled: Vec<_> = gradients.into_iter().map(into_elements::<B>).collect();
    let squares = cpu::scale(body, &mut scaled, factor as f32);
    let tensors = scaled.into_iter().zip(places);
    let tensor = |(elements, (shape, device))| write_shape::<B>(elements, shape, &device);
    (tensors.map(tensor).collect(), squares)
}
