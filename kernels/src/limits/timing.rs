//! Several launches in a row, timed together.

use std::fmt::Display;
use std::time::Instant;

use cubecl::Runtime;
use cubecl::client::ComputeClient;
use cubecl::future::block_on;

use super::LimitError;

/// Rows that are timed, of which the median counts.
const ROWS: usize = 3;

/// Runs of a row at most.
const MOST: usize = 1 << 14;

/// Waits until all is done.
pub fn settled<R: Runtime>(client: &ComputeClient<R>) -> Result<(), LimitError> {
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
pub fn each<R: Runtime>(
    client: &ComputeClient<R>,
    seconds: f64,
    mut work: impl FnMut() -> Result<(), LimitError>,
) -> Result<f64, LimitError> {
    let wanted = seconds / ROWS as f64;
    let mut row = |runs: usize| {
        let begin = Instant::now();
        (0..runs).try_for_each(|_| work())?;
        settled(client)?;
        Ok(begin.elapsed().as_secs_f64())
    };
    let mut runs = 1;
    loop {
        let taken: f64 = row(runs)?;
        if taken >= wanted || runs >= MOST {
            break;
        }
        let growth = (wanted / taken.max(1e-9)).clamp(2.0, 8.0);
        runs = ((runs as f64 * growth) as usize).min(MOST);
    }
    let mut times = (0..ROWS).map(|_| row(runs)).collect::<Result<Vec<_>, _>>()?;
    Ok(median(&mut times) / runs as f64)
}

/// The middle one of the times, of which there is one at least.
pub fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
