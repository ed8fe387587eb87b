//! The common parts of the device kernels of all operations.
//!
//! Kernels take contiguous tensors as arrays, read and write vectors where the length allows, and
//! get the size of their cubes from the device. A sum over a cube is a tree in shared memory: it
//! needs no plane operations, and its order, and so its result, does not change from run to run.

mod cubes;
mod lists;
// A condition of the compiler's and one of the device's are two.
#[allow(clippy::too_many_arguments, clippy::collapsible_if)]
mod product;
mod tensors;
mod tiles;

pub(crate) use cubes::launch;
pub use cubes::{
    Launch, after_launch, common_width, cube_count, cube_max, cube_sum, cube_sum_in, cubes,
    cubes_of_channel, elementwise, grid, lane_sum, row_of_cubes, store_sums, unit_below,
    unit_launch, units, vector_size, wide,
};
pub use lists::{
    ShareList, Shares, Vectors, arrays, load, most_tensors, pick, share, spot, spot_of, store,
};
pub use product::{Sizes, SizesLaunch, Steps, accumulate, product};
pub use tensors::{
    array, cast, empty, empty_all, empty_each, empty_like, into_contiguous, owned, strided_array,
    zeros,
};
pub use tiles::{
    DEPTH_OF_CORES, Four, SIDE, TF32, TILE, TensorCores, Tiles, along_depth, interleaved,
};

use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use crate::twice_differentiable::InnermostBackend;

/// A test of each of `laws`, which are about a runtime, for every runtime.
#[cfg(all(test, any(feature = "wgpu", feature = "cuda"), feature = "flex"))]
macro_rules! runtimes {
    ($($law:ident)*) => {
        #[cfg(feature = "wgpu")]
        mod wgpu {
            $(
                #[test]
                fn $law() {
                    super::laws::$law::<cubecl::wgpu::WgpuRuntime>();
                }
            )*
        }
        #[cfg(feature = "cuda")]
        mod cuda {
            $(
                #[test]
                #[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
                fn $law() {
                    super::laws::$law::<cubecl::cuda::CudaRuntime>();
                }
            )*
        }
    };
}
#[cfg(all(test, any(feature = "wgpu", feature = "cuda"), feature = "flex"))]
pub(crate) use runtimes;

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> InnermostBackend
    for CubeBackend<R, F, I, BT>
{
}
