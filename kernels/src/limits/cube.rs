//! Launches and copies, several in a row and timed together.

use std::fmt::Display;
use std::time::Instant;

use burn::tensor::{DType, Shape};
use burn_cubecl::ops::numeric::{empty_device_contiguous_dtype, ones_client, zeros_client};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::client::ComputeClient;
use cubecl::future::block_on;
use cubecl::prelude::*;

use super::{CopyTime, LaunchTime, LimitError, MeasuredLimits};
use crate::cube::{elementwise, grid, launch, vector_size};

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> MeasuredLimits
    for CubeBackend<R, F, I, BT>
{
    type Runtime = R;
}

/// A tensor whose elements are yet to be written.
pub fn fresh<R: CubeRuntime>(
    device: &R::Device,
    shape: impl Into<Shape>,
    dtype: DType,
) -> CubeTensor<R> {
    let client = R::client(device);
    empty_device_contiguous_dtype(client, device.clone(), shape.into(), dtype)
}

/// The values of a tensor of f32.
pub fn read<R: CubeRuntime>(tensor: CubeTensor<R>) -> Result<Vec<f32>, LimitError> {
    let bytes = tensor.client.read_one(tensor.handle).map_err(failed)?;
    Ok(f32::from_bytes(&bytes).to_vec())
}

/// Compares a value with the expected one.
pub fn checked(
    what: impl Display,
    value: f32,
    expected: f32,
    tolerance: f32,
) -> Result<(), LimitError> {
    match (value - expected).abs() <= tolerance {
        true => Ok(()),
        false => Err(failed(format!("{what} is {value}, not {expected}"))),
    }
}

/// Rows that are timed, of which the median counts.
const ROWS: usize = 3;

/// Runs of a row at most.
const MOST: usize = 1 << 14;

/// Waits until all is done.
pub fn settled<R: CubeRuntime>(client: &ComputeClient<R>) -> Result<(), LimitError> {
    block_on(client.sync()).map_err(|error| {
        // The first wait tells what went wrong, the second one clears it.
        let _ = block_on(client.sync());
        failed(error)
    })
}

/// With the first line of what the device said that has something in it.
pub fn failed(error: impl Display) -> LimitError {
    let text = error.to_string();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    LimitError::Failed { reason: line.unwrap_or_default().to_owned() }
}

/// Seconds of one `work` among several in a row, which take about `seconds` altogether. It has been
/// done before, so that nothing is compiled.
pub fn each<R: CubeRuntime>(
    client: &ComputeClient<R>,
    seconds: f64,
    mut work: impl FnMut() -> Result<(), LimitError>,
) -> Result<f64, LimitError> {
    let share = seconds / ROWS as f64;
    let mut row = |runs: usize| {
        let begin = Instant::now();
        (0..runs).try_for_each(|_| work())?;
        settled(client)?;
        Ok(begin.elapsed().as_secs_f64())
    };
    let mut runs = 1;
    loop {
        let taken: f64 = row(runs)?;
        if taken >= share || runs >= MOST {
            break;
        }
        let growth = (share / taken.max(1e-9)).clamp(2.0, 8.0);
        runs = ((runs as f64 * growth) as usize).min(MOST);
    }
    let mut times = (0..ROWS).map(|_| row(runs)).collect::<Result<Vec<_>, _>>()?;
    Ok(median(&mut times) / runs as f64)
}

/// The middle one of the times, of which there is one at least.
fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[cube(launch_unchecked)]
fn count_kernel(counter: &mut Array<f32>) {
    if ABSOLUTE_POS == 0 {
        counter[0] = counter[0] + 1.0;
    }
}

/// Launches of a row.
const LAUNCHES: usize = 500;

/// See [`launch_time`](super::launch_time).
pub fn launches<R: CubeRuntime>(
    device: &R::Device,
    seconds: f64,
) -> Result<LaunchTime, LimitError> {
    let client = R::client(device);
    let counter = zeros_client(client.clone(), device.clone(), [1].into(), DType::F32);
    let row = || {
        let begin = Instant::now();
        for _ in 0..LAUNCHES {
            // SAFETY: the counter has an element, and one unit writes to it.
            unsafe {
                launch!(count_kernel, grid(&client, [1, 1, 1], 1); counter; );
            }
        }
        let issued = begin.elapsed().as_secs_f64();
        settled(&client)?;
        Ok::<_, LimitError>([issued, begin.elapsed().as_secs_f64()])
    };
    row()?;
    let begin = Instant::now();
    let (mut issued, mut done) = (Vec::new(), Vec::new());
    while issued.is_empty() || begin.elapsed().as_secs_f64() < seconds {
        let [one, other] = row()?;
        issued.push(one);
        done.push(other);
    }
    let launched = ((issued.len() + 1) * LAUNCHES) as f32;
    let [issue, done] = [issued, done].map(|mut times| median(&mut times) / LAUNCHES as f64);
    checked("the count of launches", read(counter)?[0], launched, 0.0)?;
    Ok(LaunchTime { issue, done })
}

/// A unit for each vector.
#[cube(launch_unchecked)]
fn copy_kernel<N: Size>(
    from: &Array<Vector<f32, N>>,
    to: &mut Array<Vector<f32, N>>,
    vectors: usize,
) {
    if ABSOLUTE_POS < vectors {
        to[ABSOLUTE_POS] = from[ABSOLUTE_POS];
    }
}

#[cube(launch_unchecked)]
fn last_kernel(of: &Array<f32>, last: &mut Array<f32>, elements: usize) {
    if ABSOLUTE_POS == 0 {
        last[0] = of[elements - 1];
    }
}

/// See [`copy_time`](super::copy_time).
pub fn copies<R: CubeRuntime>(
    device: &R::Device,
    bytes: u64,
    seconds: f64,
) -> Result<CopyTime, LimitError> {
    let client = R::client(device);
    let bytes = bytes.min(client.properties().memory.max_page_size);
    // Whole vectors, and one at least.
    let floats = (bytes as usize / (4 * size_of::<f32>())).max(1) * 4;
    let shape = [floats].into();
    let from = ones_client(client.clone(), device.clone(), shape, DType::F32);
    let to = fresh::<R>(device, [floats], DType::F32);
    let width = vector_size(&client, floats, size_of::<f32>());
    let copy = || {
        // SAFETY: both have as many vectors, and units stop at the last one.
        unsafe {
            launch!(copy_kernel, elementwise(&client, floats / width), width;
                from, to; floats / width);
        }
        Ok(())
    };
    copy()?;
    let last = fresh::<R>(device, [1], DType::F32);
    // SAFETY: `to` has `floats` elements, and one unit writes the only one of `last`.
    unsafe {
        launch!(last_kernel, grid(&client, [1, 1, 1], 1); to, last; floats);
    }
    checked("the last element of a copy of ones", read(last)?[0], 1.0, 0.0)?;
    let seconds = each(&client, seconds, copy)?;
    Ok(CopyTime { bytes: (floats * size_of::<f32>()) as u64, seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_value_is_wrong() {
        assert_eq!(checked("it", 1.0, 1.25, 0.25), Ok(()));
        let wrong = checked("it", 1.0, 1.5, 0.25).unwrap_err();
        assert_eq!(wrong.to_string(), "the device failed: it is 1, not 1.5");
        assert!(checked("it", f32::NAN, 1.0, 0.25).is_err());
    }
}
