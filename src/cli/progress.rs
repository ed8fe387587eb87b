use std::io::IsTerminal;
use std::time::Duration;

use fewshot::train::{Event, StepMetrics, ValidationMetrics, print_lines};
use indicatif::{ProgressBar, ProgressStyle};

/// A bar on a terminal, lines elsewhere.
pub(crate) fn observer() -> Box<dyn FnMut(&Event)> {
    if !std::io::stderr().is_terminal() {
        return Box::new(print_lines);
    }
    let bar = ProgressBar::no_length();
    let template = "{bar:30} {pos}/{len}  {msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
    Box::new(move |event| show(&bar, event))
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
