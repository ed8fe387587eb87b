//! Where the time of training goes.
//!
//! A trainer and its learners run each part of a step in [`phase`] or [`phase_on`]; [`take`] gives
//! the time of every [`Phase`] on this thread, and on the threads that worked for it. Each phase is also a
//! `tracing` span of the target `fewshot` with the name of the phase, for whoever subscribes.

mod clock;

use std::cell::RefCell;
use std::fmt;
use std::ops::{AddAssign, Div};
use std::time::{Duration, Instant};

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};
use tracing::Span;

use clock::Clock;

/// A [`Phase`] and a field of [`PhaseTimes`] for each of these.
macro_rules! phases {
    ($($(#[$doc:meta])* $phase:ident $field:ident;)*) => {
        /// Part of a training step.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Phase {
            $($(#[$doc])* $phase,)*
        }

        impl Phase {
            /// All of them, in the order of a step.
            pub const ALL: [Self; 7] = [$(Self::$phase),*];

            /// Its name in spans and reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$phase => stringify!($field),)*
                }
            }

            /// `tracing` wants names that the compiler knows.
            fn span(self) -> Span {
                match self {
                    $(Self::$phase => tracing::info_span!(target: "fewshot", stringify!($field)),)*
                }
            }
        }

        /// Milliseconds by [`Phase`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct PhaseTimes {
            $(#[doc = concat!("[`Phase::", stringify!($phase), "`]")] pub $field: f64,)*
        }

        impl PhaseTimes {
            fn get_mut(&mut self, phase: Phase) -> &mut f64 {
                match phase {
                    $(Phase::$phase => &mut self.$field,)*
                }
            }
        }
    };
}

phases! {
    /// Tasks are drawn and brought to the device.
    Data data;
    /// A loss is computed; of learners with an inner loop, tasks are adapted to as well.
    Forward forward;
    /// The gradient of the loss.
    Backward backward;
    /// Gradients of replicas become one.
    Reduce reduce;
    /// Gradients are checked, scaled and clipped, and parameters moved.
    Step step;
    /// A validation.
    Validate validate;
    /// Metrics and checkpoints are written.
    Save save;
}

impl PhaseTimes {
    /// Milliseconds of a phase.
    pub fn get(&self, phase: Phase) -> f64 {
        let mut times = *self;
        *times.get_mut(phase)
    }

    /// Milliseconds of all phases.
    pub fn total(&self) -> f64 {
        Phase::ALL.into_iter().map(|phase| self.get(phase)).sum()
    }

    fn add(&mut self, phase: Phase, time: Duration) {
        *self.get_mut(phase) += time.as_secs_f64() * 1e3;
    }

    fn each(mut self, change: impl Fn(Phase, f64) -> f64) -> Self {
        for phase in Phase::ALL {
            let time = self.get_mut(phase);
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
        *self = self.each(|phase, time| time + other.get(phase));
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
        let taken = Phase::ALL.into_iter().filter(|phase| self.get(*phase) > 0.0);
        for (index, phase) in taken.enumerate() {
            let (name, time) = (phase.name(), self.get(phase));
            let line = if index == 0 { "" } else { "\n" };
            write!(f, "{line}{name:<9} {time:10.3} ms {:6.1} %", 100.0 * time / total)?;
        }
        Ok(())
    }
}

thread_local! {
    static CLOCK: RefCell<Clock> = RefCell::new(Clock::default());
}

/// Runs `work` and counts its time to `phase`, and not to a phase that it is a part of.
///
/// An accelerator computes on after its host has gone on: the time of the host is counted.
pub fn phase<T>(phase: Phase, work: impl FnOnce() -> T) -> T {
    let _span = phase.span().entered();
    let _within = Within::enter(phase);
    work()
}

/// Runs `work` like [`phase`]. While this thread [waits](wait_for_devices) for devices, the time begins when
/// `device` has done everything before, and ends when it has done `work`.
pub fn phase_on<B: Backend, T>(phase: Phase, device: &B::Device, work: impl FnOnce() -> T) -> T {
    let settle = || {
        if CLOCK.with_borrow(|clock| clock.waits) {
            // What fails here is told by whoever reads the result.
            let _ = B::sync(device);
        }
    };
    settle();
    self::phase(phase, || {
        let done = work();
        settle();
        done
    })
}

/// The phase that this thread is in, which ends until [`resume_like`].
pub(crate) fn pause() -> Option<Phase> {
    CLOCK.with_borrow_mut(|clock| clock.pause(Instant::now()))
}

/// Runs `work` as a part of a phase of another thread, with what phases took on this one meanwhile.
pub(crate) fn on_its_own<T>(within: Option<Phase>, work: impl FnOnce() -> T) -> (T, PhaseTimes) {
    take();
    let done = match within {
        Some(within) => phase(within, work),
        None => work(),
    };
    (done, take())
}

/// Counts the time since [`pause`] to phases in proportion to `times`, which other threads took in the
/// place of this one.
pub(crate) fn resume_like(times: PhaseTimes) {
    CLOCK.with_borrow_mut(|clock| clock.resume_like(times, Instant::now()));
}

/// Makes [`phase_on`] wait for its device from now on, or not. Times are then those of the device, and training
/// is slower where host and device would overlap.
pub fn wait_for_devices(waits: bool) {
    CLOCK.with_borrow_mut(|clock| clock.waits = waits);
}

/// Takes the times of the phases since the last call, on this thread or while it waited for others.
pub fn take() -> PhaseTimes {
    CLOCK.with_borrow_mut(Clock::take)
}

/// The innermost phase of this thread that ended in a panic since the last call.
pub(crate) fn failed() -> Option<Phase> {
    CLOCK.with_borrow_mut(|clock| clock.failed.take())
}

/// Leaves a phase however its work ends.
struct Within;

impl Within {
    fn enter(phase: Phase) -> Self {
        CLOCK.with_borrow_mut(|clock| clock.enter(phase));
        Self
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        CLOCK.with_borrow_mut(Clock::leave);
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
