//! The largest size of some work that fits a budget, by running it.

mod search;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::{Bytes, HardwareError};
use search::Search;

/// What the sizes of a search have to fit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchBudget {
    /// The memory that there is for the work.
    pub bytes: Bytes,
    /// Share of it, from 0 to below 1, that stays free beside the size that is chosen:
    /// [`KEEP_FREE`](Self::KEEP_FREE) by default. A trial is two steps; among thousands of steps,
    /// some take more.
    pub keep_free: f64,
}

impl SearchBudget {
    /// The share that stays free by default.
    pub const KEEP_FREE: f64 = 0.05;

    /// What a size may take.
    pub fn usable(self) -> Bytes {
        self.bytes.without(self.keep_free)
    }
}

impl From<Bytes> for SearchBudget {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, keep_free: Self::KEEP_FREE }
    }
}

/// What a search found, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchReport {
    /// The largest size that fits; it was run.
    pub chosen: usize,
    /// What the chosen size took.
    pub peak: Bytes,
    /// Every run, in order.
    pub trials: Vec<Trial>,
}

/// One run of a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The size that was tried.
    pub size: usize,
    /// The most memory it had in use at a time, above what was in use before; none where the device
    /// could not give the memory.
    pub peak: Option<Bytes>,
}

/// Finds the largest size of `range` whose trial takes at most what of `budget` is
/// [usable](SearchBudget::usable).
///
/// Runs the two smallest sizes, then the size that should take 97 % of the usable memory by the
/// line through the two largest sizes that ran, and so on; at worst it is a bisection of the sizes
/// that are left. The size returned was run, and so was the one after it, unless the range ends
/// there. A trial that runs out of memory does not fit.
///
/// Memory is taken to grow with the size. The budget is for this work alone: leave out what other
/// programs need.
///
/// # Errors
/// [`HardwareError::DoesNotFit`] when not even the smallest size fits, [`HardwareError::Config`] for a
/// range without sizes and a share that is not from 0 to below 1, and whatever a trial returns but
/// [`HardwareError::OutOfMemory`].
///
/// # Example
/// ```
/// use fewshot::hardware::{Bytes, SearchBudget, find_batch_size};
///
/// let trial = |size| Ok(Bytes(1000 + 30 * size as u64));
/// let found = find_batch_size(1..=4096, Bytes(10_000), trial)?;
/// assert_eq!((found.chosen, found.peak), (283, Bytes(9490)));
/// let all = SearchBudget { bytes: Bytes(10_000), keep_free: 0.0 };
/// assert_eq!(find_batch_size(1..=4096, all, trial)?.chosen, 300);
/// # Ok::<(), fewshot::hardware::HardwareError>(())
/// ```
pub fn find_batch_size(
    range: RangeInclusive<usize>,
    budget: impl Into<SearchBudget>,
    trial: impl FnMut(usize) -> Result<Bytes, HardwareError>,
) -> Result<SearchReport, HardwareError> {
    let (first, last) = range.into_inner();
    if first == 0 || first > last {
        let reason = format!("a search needs sizes from 1 on, found {first} to {last}");
        return Err(HardwareError::config("range", reason));
    }
    let budget = budget.into();
    HardwareError::check_share("keep_free", budget.keep_free)?;
    Search::new(first, last, budget.usable(), trial).run()
}
