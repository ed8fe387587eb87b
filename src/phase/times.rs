use std::fmt;
use std::ops::{AddAssign, Div};

use super::{Phase, PhaseTimes};

impl PhaseTimes {
    /// Milliseconds of a phase.
    pub fn of(&self, phase: Phase) -> f64 {
        let mut times = *self;
        *times.of_mut(phase)
    }

    /// Milliseconds of all phases.
    pub fn total(&self) -> f64 {
        Phase::ALL.into_iter().map(|phase| self.of(phase)).sum()
    }

    fn each(mut self, change: impl Fn(Phase, f64) -> f64) -> Self {
        for phase in Phase::ALL {
            let time = self.of_mut(phase);
            *time = change(phase, *time);
        }
        self
    }

    /// Rounded to microseconds.
    pub fn rounded(self) -> Self {
        self.each(|_, time| (time * 1e3).round() / 1e3)
    }
}

impl AddAssign for PhaseTimes {
    fn add_assign(&mut self, other: Self) {
        *self = self.each(|phase, time| time + other.of(phase));
    }
}

impl Div<f64> for PhaseTimes {
    type Output = Self;

    fn div(self, divisor: f64) -> Self {
        self.each(|_, time| time / divisor)
    }
}

/// A line a phase that took any time, with its share of them all.
impl fmt::Display for PhaseTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let taken = Phase::ALL.into_iter().filter(|phase| self.of(*phase) > 0.0);
        for (index, phase) in taken.enumerate() {
            let (name, time) = (phase.name(), self.of(phase));
            let line = if index == 0 { "" } else { "\n" };
            write!(f, "{line}{name:<9} {time:10.3} ms {:6.1} %", 100.0 * time / total)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_that_of_all_phases() {
        let times = PhaseTimes { forward: 30.0, backward: 70.0, ..Default::default() };
        let text = times.to_string();
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("30.0 %") && text.contains("70.0 %"), "{text}");
    }

    #[test]
    fn a_mean_is_the_sum_divided() {
        let mut times = PhaseTimes { data: 1.0, save: 2.0, ..Default::default() };
        times += times;
        assert_eq!(times / 2.0, PhaseTimes { data: 1.0, save: 2.0, ..Default::default() });
    }
}
