//! The primitives on a device: sums in two stages, maps in one pass.
//!
//! Maps are f32, f16 or bf16; vectors, sums and all arithmetic are f32.

mod maps;
mod sums;

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::ComputeClient;
use cubecl::prelude::*;

pub use maps::{affine, combine, rectified};
pub use sums::{added, correlate, cube_moments, merged, moment_parts, moments, total};

use crate::cube::{Launch, cubes_of_channel, into_contiguous, row_of_cubes, vector_size};

/// The way in which a map `[n, c, h, w]` is read by channel.
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

    /// The launch of a reduction.
    pub fn launch<'a, R: CubeRuntime>(&self, client: &'a ComputeClient<R>) -> Launch<'a, R> {
        row_of_cubes(client, self.cubes * self.channels, self.units)
    }

    /// Vectors of the map.
    pub fn all(&self) -> usize {
        self.channels * self.vectors
    }
}

/// A map with the centre, scale and shift of its channels; all contiguous.
pub struct Input<R: CubeRuntime> {
    /// `[n, c, h, w]`.
    pub x: CubeTensor<R>,
    /// Centre, scale and shift, `[c]` each.
    pub map: [CubeTensor<R>; 3],
    /// Where the tangent of a result is wanted: that of `x`, of its shape and type, and that of the
    /// map for a constant `x`, a factor of the deviation from the centre and a constant, `[2, c]`.
    pub tangents: Option<[CubeTensor<R>; 2]>,
}

impl<R: CubeRuntime> Input<R> {
    /// Without tangents.
    pub fn new(x: CubeTensor<R>, map: [CubeTensor<R>; 3]) -> Self {
        Self { x: into_contiguous(x), map: map.map(into_contiguous), tangents: None }
    }

    pub fn x_tangent(&self) -> Option<&CubeTensor<R>> {
        self.tangents.as_ref().map(|[x, _]| x)
    }

    pub fn map_tangent(&self) -> Option<&CubeTensor<R>> {
        self.tangents.as_ref().map(|[_, map]| map)
    }
}

/// A gradient of what an [`Input`] is mapped to and its tangent, `None` if that is zero; contiguous and of
/// one type.
pub struct Grad<R: CubeRuntime> {
    pub dz: CubeTensor<R>,
    pub tangent: Option<CubeTensor<R>>,
}

impl<R: CubeRuntime> Grad<R> {
    /// Without a tangent.
    pub fn new(dz: CubeTensor<R>) -> Self {
        Self { dz: into_contiguous(dz), tangent: None }
    }
}

/// Sums by channel that are yet to be added up: two for each of the cubes of every channel.
pub struct Parts<R: CubeRuntime> {
    pub sums: CubeTensor<R>,
    pub channels: usize,
    pub cubes: usize,
}

/// The channel of this cube and its number there, where each has so many; a cube beyond them ends here.
#[cube]
pub fn channel_of_cube(channels: usize, cubes: usize) -> (usize, usize) {
    let channel = CUBE_POS / cubes;
    if channel >= channels {
        terminate!();
    }
    (channel, CUBE_POS % cubes)
}

/// Where a vector of a channel lies in the map.
#[cube]
pub fn place(vector: usize, channel: usize, channels: usize, plane: usize) -> usize {
    (vector / plane * channels + channel) * plane + vector % plane
}
