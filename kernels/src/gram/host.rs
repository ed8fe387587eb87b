//! The matrices of every host backend.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, TensorMetadata};

use super::cpu;
use crate::cpu::instruction_set;
use crate::host::{HostBackend, elements, write_shape};

/// See [`FusedSteps`](crate::FusedSteps).
pub fn gram<B: HostBackend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let [tasks, rows, features]: [usize; 3] = x.shape().dims();
    let found = cpu::gram(instruction_set::chosen(), &elements::<B>(&x), [tasks, rows, features]);
    write_shape::<B>(found, Shape::new([tasks, rows, rows]), &B::float_device(&x))
}
