//! The largest size of some work that fits a budget, by running it.

mod search;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::{Bytes, HardwareError, Trial, TrialMeasure};
use search::Search;

/// What a search found, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchReport {
    /// The largest size that fits.
    pub chosen: usize,
    /// Whether `chosen` itself was run, which is always so.
    pub verified: bool,
    /// What the chosen size took.
    pub peak: Bytes,
    /// What it had to fit.
    pub budget: Bytes,
    /// What the first two trials led to expect, if memory rose from one to the other.
    pub predicted: Option<usize>,
    /// Every run, in order.
    pub trials: Vec<Trial>,
}

/// Finds the largest size of `range` whose trial takes at most `budget`.
///
/// The two smallest sizes are run, and lead to the next: what takes 97 % of the budget along the
/// line through the two largest that ran. From there on, sizes that ran close in on the answer, at
/// worst by halves; the one that is returned was run, and so was the one after it, unless it is the
/// end of the range. A device that runs out of memory in a trial makes it one that does not fit.
///
/// Memory is taken to grow with the size. What other programs are to have is not in the budget:
/// leave it out.
///
/// # Errors
/// [`HardwareError::DoesNotFit`] when not even the smallest size fits, a range without sizes, a
/// trial without a step, and whatever a trial returns but [`HardwareError::OutOfMemory`].
///
/// # Example
/// ```
/// use fewshot::hardware::{Bytes, TrialMeasure, find_batch_size};
///
/// let trial = |size| Ok(TrialMeasure { peak: Bytes(1000 + 30 * size as u64), steps: 1 });
/// let found = find_batch_size(1..=4096, Bytes(10_000), trial)?;
/// assert_eq!((found.chosen, found.peak), (300, Bytes(10_000)));
/// # Ok::<(), fewshot::hardware::HardwareError>(())
/// ```
pub fn find_batch_size(
    range: RangeInclusive<usize>,
    budget: Bytes,
    trial: impl FnMut(usize) -> Result<TrialMeasure, HardwareError>,
) -> Result<SearchReport, HardwareError> {
    let (first, last) = range.into_inner();
    if first == 0 || first > last {
        return Err(HardwareError::Range { first, last });
    }
    Search::new(first, last, budget, trial).run()
}

impl fmt::Display for SearchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.trials.iter().try_for_each(|trial| writeln!(f, "{trial}"))?;
        let Self { chosen, peak, budget, .. } = self;
        write!(f, "{chosen} takes {peak} of {budget}")
    }
}
