//! The convolution of every host backend.

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;

use super::{DepthwiseOptions, cpu};
use crate::cpu::instruction_set;
use crate::host::{HostBackend, elements, write_like};

/// See [`HostTable`](crate::host::HostTable).
pub fn depthwise<B: HostBackend>(
    tensors: [FloatTensor<B>; 4],
    options: DepthwiseOptions,
) -> FloatTensor<B> {
    let shape @ [n, c, ..]: [usize; 4] = tensors[0].shape().dims();
    let window = tensors[1].shape()[3];
    let size = options.out(shape, window).expect("checked by the caller");
    let values = tensors.each_ref().map(elements::<B>);
    let values = values.each_ref().map(|of| &**of);
    let y = cpu::depthwise(instruction_set::chosen(), values, shape, size, options);
    write_like::<B, 4>(&tensors[0], y, [n, c, size[0], size[1]])
}
