//! Statistics of gradients on a device: partial sums of every gradient into one buffer, one read.
//!
//! Gradients are f32, f16 or bf16; they are scaled and measured in f32, as they are written.

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::{cube_max, cube_sum, cubes, empty_like, lane_sum, units, vector_size, wide};

/// Floats of a cube's part: the largest magnitude, the sum of squares divided by its square, and 0
/// if all elements were finite, 1 if some were infinite, 2 if some were no numbers.
const PART: usize = 3;

/// Adds up `factor * input`, written to `output` where `scaled`; the two may be one.
#[cube(launch_unchecked)]
fn part_kernel<F: Float, N: Size>(
    input: &Array<Vector<F, N>>,
    output: &mut Array<Vector<F, N>>,
    parts: &mut Array<f32>,
    length: usize,
    factor: f32,
    first: usize,
    cubes: usize,
    #[comptime] scaled: bool,
    #[comptime] units: u32,
    #[define(F)] _dtype: StorageType,
) {
    let cube = CUBE_POS;
    let step = cubes * comptime!(units as usize);
    let start = cube * comptime!(units as usize) + UNIT_POS as usize;
    let mut largest = 0.0f32;
    let mut unfit = 0.0f32;
    let mut at = start;
    while at < length {
        let mut values = input[at];
        if scaled {
            values = Vector::cast_from(wide(values) * Vector::new(factor));
            output[at] = values;
        }
        let values = wide(values);
        #[unroll]
        for lane in 0..N::value() {
            let value = values[lane];
            if value.is_nan() {
                unfit = 2.0f32;
            } else if value.is_inf() {
                unfit = max(unfit, 1.0f32);
            } else {
                largest = max(largest, value.abs());
            }
        }
        at += step;
    }
    let largest = cube_max(largest, units);
    let unfit = cube_max(unfit, units);
    let mut sum = 0.0f32;
    if largest > 0.0f32 {
        let mut at = start;
        while at < length {
            // What this unit wrote itself.
            let mut values = input[at];
            if scaled {
                values = output[at];
            }
            let small = wide(values) / Vector::new(largest);
            sum += lane_sum(small * small);
            at += step;
        }
    }
    let sum = cube_sum(sum, units);
    if UNIT_POS == 0 {
        let part = (first + cube) * comptime!(PART);
        parts[part] = largest;
        parts[part + 1] = sum;
        parts[part + 2] = unfit;
    }
}

/// See [`FusedSteps`](crate::FusedSteps).
pub fn grad_stats<R: CubeRuntime>(
    gradients: Vec<CubeTensor<R>>,
    factor: f64,
) -> (Vec<CubeTensor<R>>, f64) {
    let gradients: Vec<_> = gradients.into_iter().map(into_contiguous).collect();
    let mut devices: Vec<R::Device> = Vec::new();
    for gradient in &gradients {
        if !devices.contains(&gradient.device) {
            devices.push(gradient.device.clone());
        }
    }
    let mut out: Vec<Option<CubeTensor<R>>> = gradients.iter().map(|_| None).collect();
    let mut gradients: Vec<_> = gradients.into_iter().map(Some).collect();
    let mut squares = 0.0;
    for device in devices {
        let here = |gradient: &CubeTensor<R>| gradient.device == device;
        let places = (0..gradients.len()).filter(|&i| gradients[i].as_ref().is_some_and(here));
        let places: Vec<usize> = places.collect();
        let taken = places.iter().filter_map(|&place| gradients[place].take()).collect();
        let (scaled, found) = of_device(taken, factor);
        squares += found;
        for (place, gradient) in places.into_iter().zip(scaled) {
            out[place] = Some(gradient);
        }
    }
    (out.into_iter().flatten().collect(), squares)
}

/// Of the gradients of one device, at least one.
fn of_device<R: CubeRuntime>(
    gradients: Vec<CubeTensor<R>>,
    factor: f64,
) -> (Vec<CubeTensor<R>>, f64) {
    let (client, device) = (gradients[0].client.clone(), gradients[0].device.clone());
    let units = units(&client);
    let plan: Vec<[usize; 3]> = gradients
        .iter()
        .map(|gradient| {
            let length = gradient.meta.num_elements();
            let width = vector_size(&client, length, gradient.elem_size());
            match length {
                0 => [0, 0, width],
                length => [cubes(length / width, units), length / width, width],
            }
        })
        .collect();
    let total: usize = plan.iter().map(|[cubes, ..]| cubes).sum();
    if total == 0 {
        return (gradients, 0.0);
    }
    let shape = Shape::new([total * PART]);
    let parts = empty_device_contiguous_dtype(client.clone(), device, shape, DType::F32);
    let mut first = 0;
    let mut scaled = Vec::with_capacity(gradients.len());
    for (gradient, [cubes, length, width]) in gradients.into_iter().zip(plan) {
        if length == 0 {
            scaled.push(gradient);
            continue;
        }
        let is_scaled = factor != 1.0;
        let in_place = is_scaled && gradient.can_mut();
        let output = match is_scaled && !in_place {
            true => empty_like(&gradient),
            false => gradient.clone(),
        };
        let written = match is_scaled && !in_place {
            true => output.clone().into_array_arg(),
            false => ArrayArg::Alias { input_pos: 0, length: [gradient.meta.num_elements()] },
        };
        // SAFETY: both arrays have `length` vectors, and units stop there; `parts` has `PART` floats
        // for each of the `cubes` from `first`. The memory is overwritten only where nothing else
        // holds it.
        unsafe {
            part_kernel::launch_unchecked::<R>(
                &client,
                CubeCount::Static(cubes as u32, 1, 1),
                CubeDim::new_1d(units),
                width,
                gradient.into_array_arg(),
                written,
                parts.clone().into_array_arg(),
                length,
                factor as f32,
                first,
                cubes,
                is_scaled,
                units,
                output.dtype.into(),
            );
        }
        first += cubes;
        scaled.push(output);
    }
    let found = burn_cubecl::ops::into_data_sync(parts).into_vec::<f32>().expect("floats");
    (scaled, found.chunks_exact(PART).map(squares).sum())
}

fn squares(part: &[f32]) -> f64 {
    match part[2] {
        0.0 => f64::from(part[0]).powi(2) * f64::from(part[1]),
        1.0 => f64::INFINITY,
        _ => f64::NAN,
    }
}
