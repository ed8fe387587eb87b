//! The sums of every host backend.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, TensorMetadata};

use super::{cpu, reference};
use crate::cpu::instruction_set;
use crate::host::{HostBackend, elements, write_shape};

/// See [`HostTable`](crate::host::HostTable).
pub fn weighted_sums<B: HostBackend>(x: FloatTensor<B>, weight: FloatTensor<B>) -> FloatTensor<B> {
    let ([examples, inputs], neurons) = (x.shape().dims(), weight.shape()[0]);
    // One example leaves the time to memory, and the plain product reads the weight once too.
    if examples < 2 || inputs * neurons == 0 {
        return reference::weighted_sums::<B>(x, weight);
    }
    let sums = cpu::weighted_sums(
        instruction_set::chosen(),
        [&elements::<B>(&x), &elements::<B>(&weight)],
        inputs,
    );
    write_shape::<B>(sums, Shape::new([examples, neurons]), &B::float_device(&x))
}
