use super::{SearchReport, Trial};
use crate::hardware::fit::Line;
use crate::hardware::{Bytes, HardwareError};

/// Share of the budget that a predicted size aims at: a jump should rather land short.
const AIM: f64 = 0.97;

/// Most by which one step goes beyond the largest size that ran.
const LEAP: usize = 16;

/// A search under way.
pub(super) struct Search<F> {
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
    pub(super) fn new(first: usize, last: usize, budget: Bytes, trial: F) -> Self {
        let bad = last.saturating_add(1);
        Self { first, last, budget, trial, trials: Vec::new(), good: 0, bad }
    }

    pub(super) fn run(mut self) -> Result<SearchReport, HardwareError> {
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
