//! What the device kernels of all operations have in common.
//!
//! Kernels take contiguous tensors as arrays, read and write vectors where the length allows, and
//! get the size of their cubes from the device. A sum over a cube is a tree in shared memory: it
//! needs no plane operations, and its order, and so its result, does not change from run to run.

mod cubes;
mod lists;
// A condition of the compiler's and one of the device's are two.
#[allow(clippy::too_many_arguments, clippy::collapsible_if)]
mod product;
mod stacks;
mod tensors;

pub use cubes::{
    cube_max, cube_sum, cube_sum_in, cubes, cubes_of_channel, elementwise, grid, lane_sum,
    row_of_cubes, units, vector_size, wide,
};
pub use lists::{
    ShareList, Shares, Vectors, arrays, common_width, load, most_tensors, pick, share, spot, store,
};
pub use product::{Finish, Matrices, Products, product};
pub use tensors::{empty, empty_like, owned, zeros};
