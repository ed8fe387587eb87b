//! Tensors for kernels.

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::{empty_device_contiguous_dtype, zeros_client};
use burn_cubecl::tensor::CubeTensor;

/// A contiguous tensor whose elements are yet to be written, on the device of `like`.
pub fn empty<R: CubeRuntime>(
    like: &CubeTensor<R>,
    shape: impl Into<Shape>,
    dtype: DType,
) -> CubeTensor<R> {
    let (client, device) = (like.client.clone(), like.device.clone());
    empty_device_contiguous_dtype(client, device, shape.into(), dtype)
}

/// A tensor of zeros on the device of `like`; no launch where it has no elements.
pub fn zeros<R: CubeRuntime>(
    like: &CubeTensor<R>,
    shape: impl Into<Shape>,
    dtype: DType,
) -> CubeTensor<R> {
    let shape = shape.into();
    match shape.num_elements() {
        0 => empty(like, shape, dtype),
        _ => zeros_client(like.client.clone(), like.device.clone(), shape, dtype),
    }
}

/// A contiguous tensor of the shape and type of `like`, whose elements are yet to be written.
pub fn empty_like<R: CubeRuntime>(like: &CubeTensor<R>) -> CubeTensor<R> {
    empty(like, like.meta.shape().clone(), like.dtype)
}

/// The tensor, contiguous, in memory that nothing else holds.
pub fn owned<R: CubeRuntime>(tensor: CubeTensor<R>) -> CubeTensor<R> {
    let tensor = into_contiguous(tensor);
    if tensor.can_mut() { tensor } else { into_contiguous(tensor.copy()) }
}
