use std::thread;
use std::time::{Duration, Instant};

use super::{Phase, PhaseTimes};

/// Phases that a thread is in, one within the other, and their times so far.
#[derive(Debug, Default)]
pub(super) struct Clock {
    pub(super) waits: bool,
    /// Phases from the outermost to the innermost.
    within: Vec<Phase>,
    /// Start of the time that is not counted yet.
    since: Option<Instant>,
    times: PhaseTimes,
    /// Innermost phase that a panic left, until it is taken.
    pub(super) failed: Option<Phase>,
}

impl Clock {
    pub(super) fn enter(&mut self, phase: Phase) {
        self.count(Instant::now());
        self.within.push(phase);
    }

    pub(super) fn leave(&mut self) {
        self.count(Instant::now());
        let left = self.within.pop();
        if thread::panicking() {
            self.failed = self.failed.or(left);
        }
    }

    pub(super) fn take(&mut self) -> PhaseTimes {
        self.count(Instant::now());
        std::mem::take(&mut self.times)
    }

    /// Counts up to now, and returns the innermost phase.
    pub(super) fn pause(&mut self, now: Instant) -> Option<Phase> {
        self.count(now);
        self.within.last().copied()
    }

    /// Gives the time since the pause to phases in proportion to `times`.
    pub(super) fn resume_like(&mut self, times: PhaseTimes, now: Instant) {
        let since = self.since.replace(now);
        if let Some(since) = since.filter(|_| times.total() > 0.0) {
            let share = now.saturating_duration_since(since).as_secs_f64() / times.total();
            for phase in Phase::ALL {
                self.times.add(phase, Duration::from_secs_f64(times.get(phase) * share));
            }
        }
    }

    /// Gives the time since the last count to the innermost phase.
    fn count(&mut self, now: Instant) {
        let since = self.since.replace(now);
        if let (Some(phase), Some(since)) = (self.within.last(), since) {
            self.times.add(*phase, now.saturating_duration_since(since));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enters a phase, or leaves the innermost, at a second since the start of the clock.
    fn change_phase(clock: &mut Clock, start: Instant, second: u64, phase: Option<Phase>) {
        clock.count(start + Duration::from_secs(second));
        match phase {
            Some(phase) => clock.within.push(phase),
            None => drop(clock.within.pop()),
        }
    }

    #[test]
    fn a_phase_within_another_is_not_counted_twice() {
        let (mut clock, start) = (Clock::default(), Instant::now());
        change_phase(&mut clock, start, 0, Some(Phase::Forward));
        change_phase(&mut clock, start, 1, Some(Phase::Backward));
        change_phase(&mut clock, start, 3, None);
        change_phase(&mut clock, start, 7, None);
        change_phase(&mut clock, start, 100, Some(Phase::Data));
        assert_eq!(clock.times.get(Phase::Forward), 5000.0);
        assert_eq!(clock.times.get(Phase::Backward), 2000.0);
        assert_eq!(clock.times.total(), 7000.0);
    }

    #[test]
    fn what_other_threads_did_is_counted_as_they_did_it() {
        let (mut clock, start) = (Clock::default(), Instant::now());
        change_phase(&mut clock, start, 0, Some(Phase::Forward));
        change_phase(&mut clock, start, 1, Some(Phase::Forward));
        assert_eq!(clock.pause(start + Duration::from_secs(2)), Some(Phase::Forward));
        let times = PhaseTimes { forward: 2.0, backward: 6.0, ..PhaseTimes::default() };
        clock.resume_like(times, start + Duration::from_secs(6));
        change_phase(&mut clock, start, 7, None);
        assert_eq!(clock.times.get(Phase::Forward), 4000.0);
        assert_eq!(clock.times.get(Phase::Backward), 3000.0);
    }
}
