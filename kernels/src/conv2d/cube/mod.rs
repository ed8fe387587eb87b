//! Convolutions on a device as matrix products, none of whose operands but the images and the weights
//! are written to memory: windows are gathered as a tile of them is needed.
//!
//! Tiles of 64 channels by 64 or 128 pixels are in shared memory and a cube's registers; products and
//! sums are f32, without tensor cores. Lanes are a dimension of the launch.

mod gather;
mod weight;

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::shape::{ConvShape, Role};

/// A sum of one or two derivatives of `<dy, conv(x, w)>` by the operand `wanted`, in the type `dtype`:
/// a term has the two operands whose roles follow, and each operand one type in both terms. The
/// weights of images in a low type are rounded to it.
pub fn convolution<R: CubeRuntime>(
    wanted: Role,
    terms: Vec<[CubeTensor<R>; 2]>,
    shape: &ConvShape,
    dtype: DType,
) -> CubeTensor<R> {
    let terms: Vec<_> = terms.into_iter().map(|term| term.map(into_contiguous)).collect();
    match wanted {
        Role::Output => gather::product(terms, shape, dtype, false),
        Role::Input => {
            let images_second = |[weight, dy]: [CubeTensor<R>; 2]| [dy, weight];
            let terms = terms.into_iter().map(images_second).collect();
            gather::product(terms, shape, dtype, true)
        }
        Role::Weight => weight::product(terms, shape, dtype),
    }
}

#[cfg(all(test, feature = "wgpu", feature = "flex"))]
mod tests;
