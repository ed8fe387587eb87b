use std::io::IsTerminal;
use std::time::{Duration, Instant};

use fewshot::train::{Event, StepMetrics, print_lines};
use indicatif::{ProgressBar, ProgressStyle};

use super::output::print_status;
use super::warnings::KernelCount;

/// A bar on a terminal, lines elsewhere. On an accelerator the bar shows that kernels are compiled until
/// the first step is done.
pub(crate) fn observer(on_accelerator: bool) -> Box<dyn FnMut(&Event)> {
    if !std::io::stderr().is_terminal() {
        return Box::new(print_lines);
    }
    let bar = ProgressBar::no_length();
    bar.set_style(style(BAR));
    // Of the first step of a run, in which an accelerator's kernels are compiled or read from disk.
    let mut compiling = None;
    Box::new(move |event| {
        match event {
            Event::Started { step, steps } if on_accelerator && step < steps => {
                bar.set_style(style("{spinner} first step: kernels are compiled, {elapsed}"));
                bar.enable_steady_tick(Duration::from_millis(100));
                compiling = Some((Instant::now(), KernelCount::compiled()));
            }
            Event::Step { .. } | Event::Skipped { .. } => {
                if let Some((since, kernels)) = compiling.take() {
                    let (kernels, seconds) = (kernels.so_far(), since.elapsed().as_secs_f64());
                    bar.disable_steady_tick();
                    bar.set_style(style(BAR));
                    bar.println(format!("first step: {kernels} kernels compiled, {seconds:.1} s"));
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
        _ => {
            if matches!(event, Event::StoppedEarly { .. }) {
                bar.abandon();
            }
            if let Some(line) = event.line() {
                bar.println(line);
            }
        }
    }
}

/// How far a run of so many steps is: a bar on a terminal, a line every twentieth part elsewhere.
pub(crate) struct StepProgress {
    steps: usize,
    bar: ProgressBar,
}

impl StepProgress {
    pub(crate) fn new(steps: usize) -> Self {
        Self { steps, bar: ProgressBar::new(steps as u64).with_style(style(BAR)) }
    }

    /// `done` steps are complete, after `spent` altogether; last told were `before`.
    pub(crate) fn tell(&self, before: usize, done: usize, spent: Duration) {
        let rate = done as f64 / spent.as_secs_f64();
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{rate:.0} steps/s"));
            self.bar.set_position(done as u64);
            return;
        }
        let part = |steps: usize| steps as u128 * 20 / self.steps as u128;
        if part(done) > part(before) {
            let (steps, left) = (self.steps, (self.steps - done) as f64 / rate);
            print_status(format_args!("step {done}/{steps}  {rate:.0} steps/s  {left:.0} s left"));
        }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
