use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::output::print_status;

/// Tells how far a run is: a bar on a terminal, a line every twentieth part elsewhere.
pub(super) struct Progress {
    steps: usize,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(steps: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let template = "{bar:30} {pos}/{len}  {msg}";
            let style = ProgressStyle::with_template(template);
            ProgressBar::new(steps as u64).with_style(style.expect("the template is well formed"))
        });
        Self { steps, bar }
    }

    /// That steps were done, in what time all of them.
    pub(super) fn tell(&self, before: usize, done: usize, spent: Duration) {
        let rate = done as f64 / spent.as_secs_f64();
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{rate:.0} steps/s"));
            bar.set_position(done as u64);
            return;
        }
        let part = |steps: usize| steps as u128 * 20 / self.steps as u128;
        if part(done) > part(before) {
            let (steps, left) = (self.steps, (self.steps - done) as f64 / rate);
            print_status(format_args!("step {done}/{steps}  {rate:.0} steps/s  {left:.0} s left"));
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
