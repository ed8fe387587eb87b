//! Backends whose tensors lie in host memory, where operations run on slices.

use std::borrow::Cow;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, Tensor, TensorData, TensorPrimitive};

/// A backend whose float tensors are ordinary memory: reading one is a copy at most.
pub trait HostBackend: Backend {
    /// The elements of an f32 tensor in row-major order, where they lie like that in memory and can
    /// be borrowed. The memory stays as it is while any clone of the tensor lives.
    fn borrow(_tensor: &FloatTensor<Self>) -> Option<&[f32]> {
        None
    }

    /// The elements of an f32 tensor in row-major order, where nothing else holds their memory; else
    /// the tensor again.
    fn take(tensor: FloatTensor<Self>) -> Result<Vec<f32>, FloatTensor<Self>> {
        Err(tensor)
    }
}

#[cfg(feature = "flex")]
impl HostBackend for burn::backend::Flex {
    fn borrow(tensor: &FloatTensor<Self>) -> Option<&[f32]> {
        tensor.as_slice()
    }

    fn take(tensor: FloatTensor<Self>) -> Result<Vec<f32>, FloatTensor<Self>> {
        if !tensor.is_unique() || tensor.as_slice::<f32>().is_none() {
            return Err(tensor);
        }
        Ok(tensor.into_data().into_vec().expect("a slice of f32 was there"))
    }
}
#[cfg(feature = "ndarray")]
impl HostBackend for burn::backend::NdArray<f32, i64> {}
/// Not registered from the start.
#[cfg(feature = "ndarray")]
impl HostBackend for burn::backend::NdArray<f32, i32> {}
#[cfg(feature = "candle")]
#[allow(deprecated)]
impl HostBackend for burn::backend::Candle<f32, i64> {}

pub(crate) fn wrap<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

pub(crate) fn unwrap<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

/// The elements of an f32 tensor, in row-major order.
pub(crate) fn read<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().into_vec().expect("the caller has checked that elements are f32")
}

/// The elements of an f32 tensor, in row-major order, copied only if they must be.
pub(crate) fn elements<B: HostBackend>(tensor: &FloatTensor<B>) -> Cow<'_, [f32]> {
    match B::borrow(tensor) {
        Some(elements) => Cow::Borrowed(elements),
        // The rank does not matter to a copy of everything.
        None => Cow::Owned(read(wrap::<B, 1>(tensor.clone()))),
    }
}

/// The elements of an f32 tensor, in row-major order, in memory of their own: its own if nothing else
/// holds it.
pub(crate) fn into_elements<B: HostBackend>(tensor: FloatTensor<B>) -> Vec<f32> {
    let tensor = match B::take(tensor) {
        Ok(elements) => return elements,
        Err(tensor) => tensor,
    };
    match B::borrow(&tensor) {
        Some(elements) => elements.to_vec(),
        // The only handle is passed on, so that a backend may pass on its memory.
        None => read(wrap::<B, 1>(tensor)),
    }
}

/// Passes on the elements of an f32 tensor, in row-major order: owned if nothing else holds them, or
/// they must be copied anyway.
pub(crate) fn consume<B: HostBackend, T>(
    tensor: FloatTensor<B>,
    then: impl FnOnce(Cow<'_, [f32]>) -> T,
) -> T {
    match B::take(tensor) {
        Ok(elements) => then(Cow::Owned(elements)),
        Err(tensor) => then(elements::<B>(&tensor)),
    }
}

/// A tensor of zeros; no launch where it has no elements, which CUDA refuses.
pub(crate) fn zeros<B: Backend>(shape: Shape, device: &B::Device, dtype: DType) -> FloatTensor<B> {
    match shape.num_elements() {
        0 => B::float_empty(shape, device, dtype.into()),
        _ => B::float_zeros(shape, device, dtype.into()),
    }
}

/// An f32 tensor on the device of `like`.
pub(crate) fn write_like<B: Backend, const D: usize>(
    like: &FloatTensor<B>,
    elements: Vec<f32>,
    shape: [usize; D],
) -> FloatTensor<B> {
    write_shape::<B>(elements, shape.into(), &B::float_device(like))
}

/// An f32 tensor of any rank.
pub(crate) fn write_shape<B: Backend>(
    elements: Vec<f32>,
    shape: Shape,
    device: &B::Device,
) -> FloatTensor<B> {
    B::float_from_data(TensorData::new(elements, shape), device)
}
