use std::io::IsTerminal;
use std::time::{Duration, Instant};

use fewshot::train::{Event, StepMetrics, ValidationMetrics, print_lines};
use indicatif::{ProgressBar, ProgressStyle};

use super::warnings::{KernelCount, Kernels};

/// A bar on a terminal, lines elsewhere. On an accelerator the bar says that kernels are compiled until
/// the first step is done.
pub(crate) fn observer(on_accelerator: bool) -> Box<dyn FnMut(&Event)> {
    if !std::io::stderr().is_terminal() {
        return Box::new(print_lines);
    }
    let bar = ProgressBar::no_length();
    bar.set_style(style(BAR));
    let mut compiling = None;
    Box::new(move |event| {
        match event {
            Event::Started { step, steps } if on_accelerator && step < steps => {
                compiling = Some(Compiling::begin(&bar));
            }
            Event::Step { .. } | Event::Skipped { .. } => {
                if let Some(compiling) = compiling.take() {
                    compiling.end(&bar);
                }
            }
            _ => {}
        }
        show(&bar, event);
    })
}

const BAR: &str = "{bar:30} {pos}/{len}  {msg}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well formed")
}

/// The first step of a run, in which an accelerator's kernels are compiled or read from disk.
struct Compiling {
    since: Instant,
    kernels: KernelCount,
}

impl Compiling {
    fn begin(bar: &ProgressBar) -> Self {
        bar.set_style(style("{spinner} first step: kernels are compiled, {elapsed}"));
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { since: Instant::now(), kernels: KernelCount::begin(Kernels::Compiled) }
    }

    fn end(self, bar: &ProgressBar) {
        let seconds = self.since.elapsed().as_secs_f64();
        bar.disable_steady_tick();
        bar.set_style(style(BAR));
        bar.println(format!(
            "first step: {} kernels compiled, {seconds:.1} s",
            self.kernels.so_far()
        ));
    }
}

fn show(bar: &ProgressBar, event: &Event) {
    match event {
        Event::Started { step, steps } => {
            bar.set_length(*steps);
            bar.set_position(*step);
        }
        Event::Step { metrics, steps, episodes_per_s, seconds_left } => {
            let StepMetrics { step, loss, .. } = metrics;
            let accuracy = metrics.accuracy.map(|accuracy| format!("accuracy {accuracy:.1} %  "));
            let accuracy = accuracy.unwrap_or_default();
            let left = indicatif::HumanDuration(seconds(*seconds_left));
            bar.set_message(format!(
                "loss {loss:.4}  {accuracy}{episodes_per_s:.1} tasks/s  {left:#} left"
            ));
            bar.set_position(*step);
            if step == steps {
                bar.finish();
            }
        }
        Event::Validated { metrics, best } => {
            let ValidationMetrics { step, validation } = metrics;
            let mark = if *best { ", the best so far" } else { "" };
            bar.println(format!("step {step}  validation {validation}{mark}"));
        }
        Event::Skipped { step, loss_scale } => bar.println(format!(
            "step {} again: its gradient overflowed at a loss scale of {loss_scale}",
            step + 1
        )),
        Event::StoppedEarly { step } => {
            bar.abandon();
            bar.println(format!("stopped early after step {step}"));
        }
        _ => {}
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
