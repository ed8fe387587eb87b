//! The number of units of a kernel, and sums over those of one cube.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn_cubecl::CubeRuntime;
use cubecl::client::ComputeClient;
use cubecl::future::block_on;
use cubecl::prelude::*;

use crate::environment::blocks_launches;

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
    common_width(client, &[row], element_size)
}

/// The widest vectors that all of these lengths divide into.
pub fn common_width<R: CubeRuntime>(
    client: &ComputeClient<R>,
    lengths: &[usize],
    element_size: usize,
) -> usize {
    let mut sizes = client.io_optimized_vector_sizes(element_size);
    let divides = |size: &usize| lengths.iter().all(|length| length.is_multiple_of(*size));
    sizes.find(divides).unwrap_or(1)
}

/// On which device a kernel is launched, and by how many units; see [`launch!`].
pub struct Launch<'a, R: CubeRuntime> {
    pub client: &'a ComputeClient<R>,
    pub cubes: CubeCount,
    pub dim: CubeDim,
}

/// Launches the kernel of this name: `launch!(kernel, launch, width; tensors; other arguments)`, all in
/// the kernel's order; tensors are its first arrays, and a kernel has a width if it reads vectors.
macro_rules! launch {
    ($kernel:ident, $launch:expr $(, $width:expr)?; $($tensor:expr),*; $($other:expr),* $(,)?) => {{
        let $crate::cube::Launch { client, cubes, dim } = $launch;
        $kernel::launch_unchecked::<R>(
            client,
            cubes,
            dim,
            $($width,)?
            $($crate::cube::array(&$tensor),)*
            $($other,)*
        );
        $crate::cube::after_launch::<R>(client, stringify!($kernel));
    }};
}
pub(crate) use launch;

/// Where launches block, waits for the kernel of this name and panics with what the device says if it failed.
pub fn after_launch<R: CubeRuntime>(client: &ComputeClient<R>, kernel: &str) {
    if !blocks_launches() {
        return;
    }
    // CubeCL 0.10 unwraps the answer of a device's thread that panicked.
    let waited = catch_unwind(AssertUnwindSafe(|| block_on(client.sync())));
    match waited {
        Ok(Ok(())) => {}
        Ok(Err(error)) => panic!("{error}\n{IN_KERNEL}{kernel}"),
        Err(_) => panic!("CallError\n{IN_KERNEL}{kernel}"),
    }
}

/// The words before the name of a kernel in the message of a device.
const IN_KERNEL: &str = "in the kernel ";

/// Cubes of so many units in each of three dimensions: a launch without any would leave CUDA's server
/// unusable, and one of more in a dimension than the device takes would never run. Either panics.
pub fn grid<R: CubeRuntime>(
    client: &ComputeClient<R>,
    cubes: [usize; 3],
    units: u32,
) -> Launch<'_, R> {
    let (x, y, z) = client.properties().hardware.max_cube_count;
    let most = [x, y, z].map(|most| most as usize);
    let fits = cubes.iter().zip(most).all(|(cubes, most)| (1..=most).contains(cubes));
    assert!(fits, "a launch of {cubes:?} cubes, where a device takes from 1 to {most:?}");
    let [x, y, z] = cubes.map(|cubes| cubes as u32);
    Launch { client, cubes: CubeCount::Static(x, y, z), dim: CubeDim::new_1d(units) }
}

/// This many cubes, whatever their number; a few more start, and must do nothing. None are a panic.
pub fn row_of_cubes<R: CubeRuntime>(
    client: &ComputeClient<R>,
    cubes: usize,
    units: u32,
) -> Launch<'_, R> {
    let rows = cubes.div_ceil(MOST_IN_A_ROW);
    grid(client, [cubes.div_ceil(rows.max(1)), rows, 1], units)
}

/// The launch of one unit for each of `items`; a few more start, and must do nothing. None are a panic.
pub fn elementwise<R: CubeRuntime>(client: &ComputeClient<R>, items: usize) -> Launch<'_, R> {
    unit_launch(client, items, CubeDim::new(client, items))
}

/// [`elementwise`] in cubes of this size.
pub fn unit_launch<R: CubeRuntime>(
    client: &ComputeClient<R>,
    items: usize,
    dim: CubeDim,
) -> Launch<'_, R> {
    assert!(items > 0, "a launch over no elements");
    Launch { client, cubes: cubecl::calculate_cube_count_elemwise(client, items, dim), dim }
}

/// The number of this unit; one that is not below `count` ends here.
#[cube]
pub fn unit_below(count: usize) -> usize {
    let unit = ABSOLUTE_POS;
    if unit >= count {
        terminate!();
    }
    unit
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

/// [`cube_sum`] of whole numbers.
#[cube]
pub fn cube_count(value: u32, #[comptime] units: u32) -> u32 {
    let mut shared = SharedMemory::<u32>::new(comptime!(units as usize));
    reduced::<u32>(value, &mut shared, units, false)
}

/// Writes the sums of two values over a cube of `units` to the two places that it has.
#[cube]
pub fn store_sums(to: &mut Array<f32>, one: f32, other: f32, #[comptime] units: u32) {
    let one = cube_sum(one, units);
    let other = cube_sum(other, units);
    if UNIT_POS == 0 {
        to[CUBE_POS * 2] = one;
        to[CUBE_POS * 2 + 1] = other;
    }
}

/// [`cube_sum`] in given memory for a number of each unit, which is free again when this ends.
#[cube]
pub fn cube_sum_in(value: f32, shared: &mut SharedMemory<f32>, #[comptime] units: u32) -> f32 {
    reduced::<f32>(value, shared, units, false)
}

#[cube]
fn reduced<N: Numeric>(
    value: N,
    shared: &mut SharedMemory<N>,
    #[comptime] units: u32,
    #[comptime] largest: bool,
) -> N {
    let unit = UNIT_POS as usize;
    shared[unit] = value;
    sync_cube();
    #[unroll]
    for step in 0..comptime!(units.trailing_zeros()) {
        let half = comptime!((units >> (step + 1)) as usize);
        if unit < half {
            if comptime!(largest) {
                shared[unit] = max(shared[unit], shared[unit + half]);
            } else {
                shared[unit] = shared[unit] + shared[unit + half];
            }
        }
        sync_cube();
    }
    let total = shared[0];
    sync_cube();
    total
}

/// The largest `value` over a cube of `units`, a power of two, in every unit.
#[cube]
pub fn cube_max(value: f32, #[comptime] units: u32) -> f32 {
    let mut shared = SharedMemory::<f32>::new(comptime!(units as usize));
    reduced::<f32>(value, &mut shared, units, true)
}
