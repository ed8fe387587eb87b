//! The largest size of some work that fits a budget, by running it.

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::fit::Line;
use super::{Bytes, HardwareError};

/// Memory that the sizes of a search have to fit.
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

    /// Memory that a size may take.
    pub fn usable(self) -> Bytes {
        self.bytes.without(self.keep_free)
    }
}

impl From<Bytes> for SearchBudget {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, keep_free: Self::KEEP_FREE }
    }
}

/// Result of a search, with its trials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchReport {
    /// The largest size that fits; it was run.
    pub chosen: usize,
    /// Peak of memory at the chosen size.
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
    let (budget, bad) = (budget.usable(), last.saturating_add(1));
    Search { first, last, budget, trial, trials: Vec::new(), good: 0, bad }.run()
}

/// Share of the budget that a predicted size aims at: a jump should rather land short.
const AIM: f64 = 0.97;

/// Most by which one step goes beyond the largest size that ran.
const LEAP: usize = 16;

/// A search under way.
struct Search<F> {
    first: usize,
    last: usize,
    budget: Bytes,
    trial: F,
    trials: Vec<Trial>,
    /// The largest size that fits.
    good: usize,
    /// The smallest that does not; beyond the last until one is found.
    bad: usize,
}

impl<F: FnMut(usize) -> Result<Bytes, HardwareError>> Search<F> {
    fn run(mut self) -> Result<SearchReport, HardwareError> {
        self.run_one(self.first)?;
        if self.good == 0 {
            let (size, need, budget) = (self.first, self.trials[0].peak, self.budget);
            return Err(HardwareError::DoesNotFit { size, need, budget });
        }
        if self.first < self.last {
            self.run_one(self.first + 1)?;
        }
        let mut predictions = 0;
        while self.bad - self.good > 1 {
            // Predictions that creep would take as many runs as there are sizes.
            let halve = self.bad <= self.last && predictions == 2;
            let middle = self.good + (self.bad - self.good) / 2;
            let size = if halve { middle } else { self.next() };
            predictions = if halve || self.bad > self.last { 0 } else { predictions + 1 };
            self.run_one(size)?;
        }
        let chosen = self.trials.iter().find(|trial| trial.size == self.good);
        let peak = chosen.and_then(|trial| trial.peak).unwrap_or_default();
        Ok(SearchReport { chosen: self.good, peak, trials: self.trials })
    }

    fn run_one(&mut self, size: usize) -> Result<(), HardwareError> {
        let peak = match (self.trial)(size) {
            Ok(peak) => Some(peak),
            Err(HardwareError::OutOfMemory { .. }) => None,
            Err(error) => return Err(error),
        };
        self.trials.push(Trial { size, peak });
        match peak.is_some_and(|peak| peak <= self.budget) {
            true => self.good = self.good.max(size),
            false => self.bad = self.bad.min(size),
        }
        Ok(())
    }

    /// Through what the two largest sizes that ran to their end took.
    fn line(&self) -> Option<Line> {
        let ran = self.trials.iter().filter_map(|trial| Some((trial.size, trial.peak?)));
        let mut ran: Vec<_> = ran.collect();
        ran.sort_unstable();
        let [.., one, other] = ran[..] else { return None };
        Some(Line::through(one, other))
    }

    /// The size that the line leads to, among those that are open: short of the budget, and to
    /// its end from there.
    fn next(&self) -> usize {
        let within = |share: f64| {
            let aim = Bytes((self.budget.0 as f64 * share) as u64);
            self.line().map_or(Some(0), |line| line.largest(aim))
        };
        let beyond = within(AIM).filter(|&size| size <= self.good).and_then(|_| within(1.0));
        let predicted = beyond.or(within(AIM)).unwrap_or(2 * self.good);
        let farthest = self.good.saturating_mul(LEAP).min(self.bad - 1);
        predicted.clamp(self.good + 1, farthest.max(self.good + 1))
    }
}
