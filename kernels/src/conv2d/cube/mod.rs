//! Convolutions on a device as matrix products, none of whose operands but the images and the weights
//! are written to memory: windows are gathered as a tile of them is needed.
//!
//! Tiles of 64 channels by 64 or 128 pixels are in shared memory and a cube's registers. Tensor cores
//! multiply maps of 16 bits, and f32 rounded to TF32 if that is asked for; units multiply the rest in f32.
//! Sums are f32, which CUDA's tensor cores truncate rather than round. Lanes are a dimension of the launch.

mod gather;
mod weight;

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::StorageType;

use super::shape::{ConvShape, Role};
use crate::cube::{TF32, TensorCores, into_contiguous};

/// A sum of one or two derivatives of `<dy, conv(x, w)>` by the operand `wanted`, in the type `dtype`:
/// a term has the two operands whose roles follow, and each operand one type in both terms. The
/// weights of images in a low type are rounded to it.
pub fn convolution<R: CubeRuntime>(
    role: Role,
    terms: &[[&CubeTensor<R>; 2]],
    shape: &ConvShape,
    dtype: DType,
) -> CubeTensor<R> {
    let terms: Vec<_> =
        terms.iter().map(|term| term.map(|of| into_contiguous(of.clone()))).collect();
    match role {
        Role::Output => gather::product(terms, shape, dtype, false),
        Role::Input => {
            let terms = terms.into_iter().map(|[weight, dy]| [dy, weight]).collect();
            gather::product(terms, shape, dtype, true)
        }
        Role::Weight => weight::product(terms, shape, dtype),
    }
}

/// True if a device has tensor cores for f32 rounded to TF32.
pub fn has_tf32<R: CubeRuntime>(device: &R::Device) -> bool {
    TensorCores::of(&R::client(device), TF32, 1).is_some()
}

/// The type that maps are multiplied in, and the tensor cores: of 16 bits in their own type, of f32 in TF32 if
/// it is asked for, where the device has tensor cores for that; otherwise in f32 by units.
fn multiplier<R: CubeRuntime>(
    maps: &CubeTensor<R>,
    shape: &ConvShape,
    vectors: usize,
) -> (StorageType, Option<TensorCores>) {
    let rounded = match maps.dtype {
        DType::F32 if shape.tf32 => Some(TF32),
        DType::F32 => None,
        low => Some(low.into()),
    };
    rounded
        .and_then(|of| Some((of, Some(TensorCores::of(&maps.client, of, vectors)?))))
        .unwrap_or((DType::F32.into(), None))
}

#[cfg(all(test, any(feature = "wgpu", feature = "cuda"), feature = "flex"))]
mod tests;
