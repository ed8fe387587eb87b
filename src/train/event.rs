use std::io::Write;

use super::{StepMetrics, ValidationMetrics};

/// Event of a training, for its observer.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Event {
    /// Training begins, or goes on after `step` steps.
    Started { step: u64, steps: u64 },
    /// A step is done. `episodes_per_s` are training tasks a second since the start, without
    /// validations; `seconds_left` is an estimate of the time to the end, with them.
    Step { metrics: StepMetrics, steps: u64, episodes_per_s: f64, seconds_left: f64 },
    /// The step after `step` was not made, because gradients overflowed in `f16`; it is tried
    /// again.
    Skipped { step: u64, loss_scale: f32 },
    /// A validation is done.
    Validated { metrics: ValidationMetrics, best: bool },
    /// Training ended early, because validations no longer improved.
    StoppedEarly { step: u64 },
}

/// Tells about validations, resumed and skipped steps, and every twentieth part of the steps, in lines on
/// standard error.
pub fn print_lines(event: &Event) {
    if let Some(line) = event.line() {
        // A run outlives the terminal it was started from.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

impl Event {
    /// The line to print about this event, if there is one: a run has about twenty for its steps.
    pub fn line(&self) -> Option<String> {
        Some(match self {
            Event::Started { step: 0, .. } => return None,
            Event::Started { step, steps } => format!("resuming at step {step} of {steps}"),
            Event::Step { metrics, steps, episodes_per_s, seconds_left } => {
                let StepMetrics { step, loss, .. } = metrics;
                if !step.is_multiple_of((steps / 20).max(1)) {
                    return None;
                }
                let accuracy =
                    metrics.accuracy.map(|accuracy| format!("  accuracy {accuracy:.1} %"));
                let accuracy = accuracy.unwrap_or_default();
                format!(
                    "step {step}/{steps}  loss {loss:.4}{accuracy}  {episodes_per_s:.1} tasks/s  \
                     {seconds_left:.0} s left"
                )
            }
            Event::Skipped { step, loss_scale } => {
                format!(
                    "step {} again: its gradient overflowed at a loss scale of {loss_scale}",
                    step + 1
                )
            }
            Event::Validated { metrics, best } => {
                let ValidationMetrics { step, validation } = metrics;
                let mark = if *best { ", the best so far" } else { "" };
                format!("step {step}  validation {validation}{mark}")
            }
            Event::StoppedEarly { step } => format!("stopped early after step {step}"),
        })
    }
}
