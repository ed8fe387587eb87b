use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fewshot::episode::EpisodeSizes;
use fewshot::train::{Event, StepMetrics, print_lines};
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::print_status;
use crate::warnings::KernelCount;

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

/// The course of a run of so many steps: a bar on a terminal, a line every twentieth part elsewhere.
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
        if part(done, self.steps) > part(before, self.steps) {
            let (steps, left) = (self.steps, (self.steps - done) as f64 / rate);
            print_status(format_args!("step {done}/{steps}  {rate:.0} steps/s  {left:.0} s left"));
        }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Shortest test whose cost is told.
const LONG: Duration = Duration::from_secs(10);

/// The course of a test of a method over episodes: a bar on a terminal; elsewhere a line at its start and,
/// of a long one, its cost and a line every twentieth part. Many threads may tell.
pub(crate) struct EpisodeProgress {
    method: String,
    /// Number of ways in a text.
    ways: String,
    episodes: usize,
    bar: ProgressBar,
    course: Mutex<Course>,
}

/// The episodes done since `start`.
struct Course {
    start: Instant,
    done: usize,
    long: bool,
}

impl EpisodeProgress {
    pub(crate) fn start(method: &str, sizes: EpisodeSizes, episodes: usize) -> Self {
        let ways = match sizes.protocol() {
            Some(protocol) => protocol.ways.to_string(),
            None => "various".to_owned(),
        };
        let method = method.to_owned();
        let bar = ProgressBar::new(episodes as u64).with_style(style(BAR));
        bar.set_message(format!("{method}, {ways} ways"));
        if bar.is_hidden() {
            let many = if episodes == 1 { "" } else { "s" };
            print_status(format_args!("{method}: testing {episodes} episode{many} of {ways} ways"));
        }
        let course = Course { start: Instant::now(), done: 0, long: false };
        Self { method, ways, episodes, bar, course: Mutex::new(course) }
    }

    /// `more` episodes are done; with 0, the first one begins.
    pub(crate) fn tell(&self, more: usize) {
        let mut course = self.course.lock().expect("no thread fails while it tells");
        if more == 0 {
            course.start = Instant::now();
            return;
        }
        let (before, spent) = (course.done, course.start.elapsed());
        course.done += more;
        let each = spent.as_secs_f64() / course.done as f64;
        if before == 0 && seconds(each * self.episodes as f64) > LONG {
            course.long = true;
            self.line(self.cost(each));
        }
        let left = readable(each * (self.episodes - course.done) as f64);
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{}, {} ways  {left} left", self.method, self.ways));
            self.bar.set_position(course.done as u64);
        } else if course.long && part(course.done, self.episodes) > part(before, self.episodes) {
            let Self { method, episodes, .. } = self;
            self.line(format!("{method}: episode {}/{episodes}  {left} left", course.done));
        }
    }

    fn cost(&self, each: f64) -> String {
        let Self { method, ways, episodes, .. } = self;
        let (all, each) = (readable(each * *episodes as f64), readable(each));
        format!("{method}: {each} an episode of {ways} ways, about {all} for {episodes} episodes")
    }

    fn line(&self, line: String) {
        if self.bar.is_hidden() { print_status(line) } else { self.bar.println(line) }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The number of twentieths of all that are done.
fn part(done: usize, all: usize) -> u128 {
    done as u128 * 20 / all as u128
}

/// A time in the two units that suit it.
fn readable(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round();
    match seconds {
        0.0..0.1 => format!("{:.2} ms", seconds * 1e3),
        0.1..100.0 => format!("{seconds:.1} s"),
        100.0..3570.0 => format!("{minutes:.0} min"),
        _ => format!("{:.0} h {:.0} min", (minutes / 60.0).floor(), minutes % 60.0),
    }
}

pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use fewshot::episode::Protocol;

    use super::*;

    #[test]
    fn a_time_has_units_that_suit_it() {
        let times =
            [(0.0012, "1.20 ms"), (12.4, "12.4 s"), (125.0, "2 min"), (7440.0, "2 h 4 min")];
        for (seconds, text) in times {
            assert_eq!(readable(seconds), text);
        }
        assert_eq!(readable(3590.0), "1 h 0 min");
        assert_eq!(readable(7199.0), "2 h 0 min");
    }

    #[test]
    fn a_long_test_has_its_cost_told() {
        let progress =
            EpisodeProgress::start("deep-emd", EpisodeSizes::Fixed(Protocol::new(300, 5)), 600);
        let cost = "deep-emd: 12.4 s an episode of 300 ways, about 2 h 4 min for 600 episodes";
        assert_eq!(progress.cost(12.4), cost);
        progress.tell(0);
        progress.tell(3);
        progress.tell(2);
        assert_eq!(progress.course.lock().unwrap().done, 5);
    }

    #[test]
    fn twentieths_are_complete_ones() {
        assert_eq!([0, 29, 30, 599, 600].map(|done| part(done, 600)), [0, 0, 1, 19, 20]);
    }
}
