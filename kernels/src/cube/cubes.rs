//! How many units a kernel gets, and sums over those of one cube.

use burn_cubecl::CubeRuntime;
use cubecl::client::ComputeClient;
use cubecl::prelude::*;

/// Cubes of a reduction's first stage: enough to fill a device, and few to add up.
const MOST_CUBES: usize = 128;

/// Elements that a unit takes before another cube is worth it.
const PER_UNIT: usize = 8;

/// Units of a cube that reduces: a power of two.
pub fn units<R: CubeRuntime>(client: &ComputeClient<R>) -> u32 {
    let most = client.properties().hardware.max_units_per_cube.clamp(1, 256);
    1 << most.ilog2()
}

/// Cubes of `units` for a reduction of this many elements (or vectors), at least one.
pub fn cubes(elements: usize, units: u32) -> usize {
    elements.div_ceil(units as usize * PER_UNIT).clamp(1, MOST_CUBES)
}

/// Cubes in a dimension that every device takes.
const MOST_IN_A_ROW: usize = 65_535;

/// Cubes of a reduction by channel, over all channels.
const MOST_CHANNEL_CUBES: usize = 1024;

/// Cubes of each channel, and units of a cube, for a reduction of so many elements (or vectors) a
/// channel.
pub fn cubes_of_channel<R: CubeRuntime>(
    client: &ComputeClient<R>,
    channels: usize,
    elements: usize,
) -> (usize, u32) {
    let units = units(client).min((elements as u32).next_power_of_two().max(32));
    let worth = elements.div_ceil(units as usize * PER_UNIT);
    ((MOST_CHANNEL_CUBES / channels).min(worth).max(1), units)
}

/// The widest vectors that a tensor of rows of this length divides into.
pub fn vector_size<R: CubeRuntime>(
    client: &ComputeClient<R>,
    row: usize,
    element_size: usize,
) -> usize {
    let mut sizes = client.io_optimized_vector_sizes(element_size);
    sizes.find(|size| row.is_multiple_of(*size)).unwrap_or(1)
}

/// Cubes in each of three dimensions: a launch without any would leave CUDA's server unusable, and one of
/// more in a dimension than the device takes would never run.
///
/// # Panics
/// Where there are none, or more than fit.
pub fn grid<R: CubeRuntime>(client: &ComputeClient<R>, cubes: [usize; 3]) -> CubeCount {
    let (x, y, z) = client.properties().hardware.max_cube_count;
    let most = [x, y, z].map(|most| most as usize);
    let fits = cubes.iter().zip(most).all(|(cubes, most)| (1..=most).contains(cubes));
    assert!(fits, "a launch of {cubes:?} cubes, where a device takes from 1 to {most:?}");
    let [x, y, z] = cubes.map(|cubes| cubes as u32);
    CubeCount::Static(x, y, z)
}

/// This many cubes, whatever their number; a few more start, and must do nothing.
///
/// # Panics
/// Where there are none.
pub fn row_of_cubes<R: CubeRuntime>(client: &ComputeClient<R>, cubes: usize) -> CubeCount {
    let rows = cubes.div_ceil(MOST_IN_A_ROW);
    grid(client, [cubes.div_ceil(rows.max(1)), rows, 1])
}

/// The launch of one unit for each of `items`; a few more start, and must do nothing.
///
/// # Panics
/// Where there are none.
pub fn elementwise<R: CubeRuntime>(
    client: &ComputeClient<R>,
    items: usize,
) -> (CubeCount, CubeDim) {
    assert!(items > 0, "a launch over no elements");
    let dim = CubeDim::new(client, items);
    (cubecl::calculate_cube_count_elemwise(client, items, dim), dim)
}

/// A vector in f32.
#[cube]
pub fn wide<F: Float, N: Size>(vector: Vector<F, N>) -> Vector<f32, N> {
    Vector::cast_from(vector)
}

/// The sum of the elements of a vector.
#[cube]
pub fn lane_sum<N: Size>(vector: Vector<f32, N>) -> f32 {
    let mut sum = 0.0f32;
    #[unroll]
    for lane in 0..N::value() {
        sum += vector[lane];
    }
    sum
}

/// The sum of `value` over a cube of `units`, a power of two, in every unit.
#[cube]
pub fn cube_sum(value: f32, #[comptime] units: u32) -> f32 {
    let mut shared = SharedMemory::<f32>::new(comptime!(units as usize));
    cube_sum_in(value, &mut shared, units)
}

/// The same with memory for a number of each unit, which is free again when this ends.
#[cube]
pub fn cube_sum_in(value: f32, shared: &mut SharedMemory<f32>, #[comptime] units: u32) -> f32 {
    let unit = UNIT_POS as usize;
    shared[unit] = value;
    sync_cube();
    #[unroll]
    for step in 0..comptime!(units.trailing_zeros()) {
        let half = comptime!((units >> (step + 1)) as usize);
        if unit < half {
            shared[unit] = shared[unit] + shared[unit + half];
        }
        sync_cube();
    }
    let sum = shared[0];
    sync_cube();
    sum
}

/// The largest `value` over a cube of `units`, a power of two, in every unit.
#[cube]
pub fn cube_max(value: f32, #[comptime] units: u32) -> f32 {
    let mut shared = SharedMemory::<f32>::new(comptime!(units as usize));
    let unit = UNIT_POS as usize;
    shared[unit] = value;
    sync_cube();
    #[unroll]
    for step in 0..comptime!(units.trailing_zeros()) {
        let half = comptime!((units >> (step + 1)) as usize);
        if unit < half {
            shared[unit] = max(shared[unit], shared[unit + half]);
        }
        sync_cube();
    }
    let largest = shared[0];
    sync_cube();
    largest
}
