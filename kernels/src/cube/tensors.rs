//! Tensors for kernels.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel;
use burn_cubecl::ops::numeric::{empty_device_contiguous_dtype, zeros_client};
use burn_cubecl::tensor::CubeTensor;
use cubecl::device::Device;
use cubecl::device_handle::DeviceHandle;
use cubecl::prelude::ArrayArg;
use cubecl::server::{MemoryLayout, MemoryLayoutDescriptor};
use cubecl::zspace::metadata::Metadata;
use cubecl::zspace::striding::row_major_contiguous_strides;

/// The elements of a contiguous tensor, as an argument of a kernel. A clone of the tensor itself would cost
/// the host an allocation and the counters of its client, at each of a launch's arrays.
///
/// # Panics
/// Where the tensor is not contiguous. On CUDA and ROCm, Burn's own operations give the rows of their results a
/// pitch, and a kernel would read the memory between the rows.
pub fn array<R: CubeRuntime>(tensor: &CubeTensor<R>) -> ArrayArg<R> {
    assert!(is_contiguous(tensor), "a kernel's array has strides {:?}", tensor.meta);
    strided_array(tensor)
}

/// The memory of a tensor, for a kernel that goes by its strides.
pub fn strided_array<R: CubeRuntime>(tensor: &CubeTensor<R>) -> ArrayArg<R> {
    // SAFETY: the elements of its shape are in its memory; a kernel that knows of strides reads no others.
    unsafe { ArrayArg::from_raw_parts(tensor.handle.clone(), tensor.meta.num_elements()) }
}

/// True if elements lie in the order of their places; an axis of one place may have any stride.
fn is_contiguous<R: CubeRuntime>(tensor: &CubeTensor<R>) -> bool {
    let mut expected = 1;
    let (shape, strides) = (tensor.meta.shape(), tensor.meta.strides());
    let in_place = |(length, stride): (&usize, &usize)| {
        let fits = *length == 1 || *stride == expected;
        expected *= length;
        fits
    };
    shape.contains(&0) || shape.iter().zip(strides.iter()).rev().all(in_place)
}

/// Allocations from one look at the device's thread to the next: with their launches about eight messages.
const INTERVAL: usize = 4;

/// Devices that are told apart.
const DEVICES: usize = 64;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Hands the queued messages to the thread of the device of `like` if it has done all that it was handed
/// here, which every fourth call looks at.
///
/// CubeCL 0.10 queues 32 messages before the device's thread takes any. Until then that thread spins, and
/// sleeps for 150 microseconds at a time if they are long in coming; then a step of few launches waits for it.
/// A thread that is busy is left to it: the next message would wait for all that it has.
fn hand_over<R: CubeRuntime>(like: &CubeTensor<R>) {
    static BUSY: [AtomicBool; DEVICES] = [const { AtomicBool::new(false) }; DEVICES];
    let count = ALLOCATIONS.get() + 1;
    ALLOCATIONS.set(count % INTERVAL);
    if count < INTERVAL {
        return;
    }
    let device = like.device.to_id();
    let busy = &BUSY[device.index_id as usize % DEVICES];
    if !busy.swap(true, Ordering::Relaxed) {
        let handle = DeviceHandle::<R::Server>::new(device);
        handle.submit(|_| busy.store(false, Ordering::Relaxed));
        handle.flush_queue();
    }
}

/// A contiguous tensor whose elements are yet to be written, on the device of `like`.
pub fn empty<R: CubeRuntime>(
    like: &CubeTensor<R>,
    shape: impl Into<Shape>,
    dtype: DType,
) -> CubeTensor<R> {
    let (client, device) = (like.client.clone(), like.device.clone());
    let tensor = empty_device_contiguous_dtype(client, device, shape.into(), dtype);
    hand_over(&tensor);
    tensor
}

/// Bytes of tensors that [`empty_all`] puts together.
const MOST_TOGETHER: usize = 64 << 20;

/// Several such tensors, which together are one message to the device's thread. They share their memory, if it
/// is not too large: it is free again once all of them are gone, and none is written to in place later.
pub fn empty_all<R: CubeRuntime>(
    like: &CubeTensor<R>,
    shapes: Vec<Shape>,
    dtype: DType,
) -> Vec<CubeTensor<R>> {
    let elements: usize = shapes.iter().map(Shape::num_elements).sum();
    if elements * dtype.size() > MOST_TOGETHER {
        return shapes.into_iter().map(|shape| empty(like, shape, dtype)).collect();
    }
    let contiguous =
        |shape: &Shape| MemoryLayoutDescriptor::contiguous(shape.clone(), dtype.size());
    let layouts = like.client.empty_tensors(shapes.iter().map(contiguous).collect());
    hand_over(like);
    let tensor = |(shape, MemoryLayout { memory, strides })| {
        let (client, device) = (like.client.clone(), like.device.clone());
        CubeTensor::new(client, memory, Metadata::new(shape, strides), device, dtype)
    };
    shapes.into_iter().zip(layouts).map(tensor).collect()
}

/// [`empty_all`] of a number of shapes that the compiler knows.
pub fn empty_each<R: CubeRuntime, const N: usize>(
    like: &CubeTensor<R>,
    shapes: [impl Into<Shape>; N],
    dtype: DType,
) -> [CubeTensor<R>; N] {
    let tensors = empty_all(like, shapes.map(Into::into).into(), dtype);
    tensors.try_into().unwrap_or_else(|_| unreachable!("a tensor for each shape"))
}

/// A contiguous tensor of zeros on the device of `like`; no launch where it has no elements.
pub fn zeros<R: CubeRuntime>(
    like: &CubeTensor<R>,
    shape: impl Into<Shape>,
    dtype: DType,
) -> CubeTensor<R> {
    let shape = shape.into();
    match shape.num_elements() {
        0 => empty(like, shape, dtype),
        elements => {
            let flat = [elements].into();
            let zeros = zeros_client(like.client.clone(), like.device.clone(), flat, dtype);
            shaped(zeros, shape)
        }
    }
}

/// A contiguous tensor in another shape.
fn shaped<R: CubeRuntime>(mut tensor: CubeTensor<R>, shape: Shape) -> CubeTensor<R> {
    let strides = row_major_contiguous_strides(&shape);
    *tensor.meta = Metadata::new(shape, strides);
    tensor
}

/// A contiguous tensor in another type; Burn's own cast gives rows a pitch on CUDA.
pub fn cast<R: CubeRuntime>(tensor: CubeTensor<R>, dtype: DType) -> CubeTensor<R> {
    if tensor.dtype == dtype {
        return tensor;
    }
    let shape = tensor.meta.shape().clone();
    let flat = [shape.num_elements()].into();
    shaped(kernel::cast(shaped(tensor, flat), dtype), shape)
}

/// A contiguous tensor of the shape and type of `like`, whose elements are yet to be written.
pub fn empty_like<R: CubeRuntime>(like: &CubeTensor<R>) -> CubeTensor<R> {
    empty(like, like.meta.shape().clone(), like.dtype)
}

/// The tensor, contiguous. Burn's own copy is launched over no blocks where there are no elements.
pub fn into_contiguous<R: CubeRuntime>(tensor: CubeTensor<R>) -> CubeTensor<R> {
    let shape = tensor.meta.shape().clone();
    match shape.num_elements() {
        0 => shaped(tensor, shape),
        _ => kernel::into_contiguous(tensor),
    }
}

/// The tensor, contiguous, in memory that nothing else holds.
pub fn owned<R: CubeRuntime>(tensor: CubeTensor<R>) -> CubeTensor<R> {
    let tensor = into_contiguous(tensor);
    if tensor.can_mut() { tensor } else { into_contiguous(tensor.copy()) }
}
