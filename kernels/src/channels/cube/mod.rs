//! The primitives on a device: sums in two stages, maps in one pass.
//!
//! Maps are f32, f16 or bf16; vectors, sums and all arithmetic are f32.

mod maps;
mod sums;

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::ComputeClient;
use cubecl::prelude::*;

pub use maps::{affine, combine};
pub use sums::{added, correlate, merged, moment_parts, moments, total};

use crate::cube::{cubes_of_channel, row_of_cubes, vector_size};

/// How a map `[n, c, h, w]` is read by channel.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub channels: usize,
    /// Vectors of a plane.
    pub plane: usize,
    /// Vectors of a channel.
    pub vectors: usize,
    pub width: usize,
    /// Cubes of a channel, in a reduction.
    pub cubes: usize,
    pub units: u32,
}

impl Plan {
    pub fn new<R: CubeRuntime>(x: &CubeTensor<R>) -> Self {
        let [n, channels, h, w] = x.meta.shape().dims();
        let width = vector_size(&x.client, h * w, x.elem_size());
        let (plane, vectors) = (h * w / width, n * h * w / width);
        let (cubes, units) = cubes_of_channel(&x.client, channels, vectors);
        Self { channels, plane, vectors, width, cubes, units }
    }

    pub fn count<R: CubeRuntime>(&self, client: &ComputeClient<R>) -> CubeCount {
        row_of_cubes(client, self.cubes * self.channels)
    }

    pub fn dim(&self) -> CubeDim {
        CubeDim::new_1d(self.units)
    }

    /// Vectors of the map.
    pub fn all(&self) -> usize {
        self.channels * self.vectors
    }
}

/// Sums by channel that are yet to be added up: two for each of the cubes of every channel.
pub struct Parts<R: CubeRuntime> {
    pub sums: CubeTensor<R>,
    pub channels: usize,
    pub cubes: usize,
}

/// Where a vector of a channel lies in the map.
#[cube]
pub fn place(vector: usize, channel: usize, channels: usize, plane: usize) -> usize {
    (vector / plane * channels + channel) * plane + vector % plane
}
