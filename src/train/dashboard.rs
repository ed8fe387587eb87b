use std::io::{IsTerminal, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::data::dataloader::Progress;
use burn_train::Interrupter;
use burn_train::metric::{
    MetricAttributes, MetricDefinition, MetricEntry, MetricId, NumericEntry, SerializedEntry,
};
use burn_train::renderer::tui::TuiMetricsRendererWrapper;
use burn_train::renderer::{MetricState, MetricsRenderer, TrainingProgress};

use super::{Event, StepMetrics, ValidationMetrics, print_lines};
use crate::episode::Measure;

const LOSS: &str = "Loss";
const ACCURACY: &str = "Accuracy";
const SQUARED_ERROR: &str = "Squared error";
const LEARNING_RATE: &str = "Learning rate";
const SPEED: &str = "Tasks a second";
const NOTICE: &str = "Notice";

/// Observer that shows a training in the dashboard of `burn-train`; with the feature `train-tui`.
///
/// The dashboard opens when training starts, and closes when [`fit`](super::MetaTrainer::fit) returns. Key `q`
/// and then `s` sets `interrupt`, which the trainer has as its [`interrupt`](super::MetaTrainer::interrupt)
/// too. Where standard output is no terminal, the observer [prints lines](print_lines) instead.
///
/// # Example
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use burn::backend::{Autodiff, Flex};
/// use fewshot::prelude::*;
/// use fewshot::train::dashboard;
///
/// let interrupt = Arc::default();
/// let glyphs = Glyphs::generate(&GlyphsConfig::default());
/// let network = Conv4Config::omniglot().init(&Default::default());
/// let trained = MetaTrainer::new(ProtoNet::<Autodiff<Flex>, _>::new(network), Adam::new().init())
///     .episodes(glyphs.train.sampler(Protocol::new(5, 1).with_queries(5), 7)?)
///     .steps(2)
///     .observe(dashboard(Arc::clone(&interrupt)))
///     .interrupt(interrupt)
///     .fit()?;
/// assert_eq!(trained.report.steps, 2);
/// # Ok(())
/// # }
/// ```
pub fn dashboard(interrupt: Arc<AtomicBool>) -> Box<dyn FnMut(&Event)> {
    if !stdout().is_terminal() {
        return Box::new(print_lines);
    }
    let interrupter = Interrupter::new();
    let mut dashboard = None;
    Box::new(move |event| {
        let dashboard = dashboard.get_or_insert_with(|| {
            let first = match event {
                Event::Started { step, .. } => usize::try_from(*step).ok(),
                _ => None,
            };
            Dashboard::new(TuiMetricsRendererWrapper::new(interrupter.clone(), first))
        });
        dashboard.show(event);
        if interrupter.should_stop() {
            interrupt.store(true, Ordering::Relaxed);
        }
    })
}

/// Events of a training as the metrics of a renderer.
struct Dashboard<R> {
    renderer: R,
}

impl<R: MetricsRenderer> Dashboard<R> {
    fn new(mut renderer: R) -> Self {
        for name in [LOSS, ACCURACY, SQUARED_ERROR, LEARNING_RATE, SPEED, NOTICE] {
            renderer.register_metric(MetricDefinition {
                metric_id: id(name),
                name: name.to_owned(),
                description: None,
                attributes: MetricAttributes::None,
            });
        }
        Self { renderer }
    }

    fn show(&mut self, event: &Event) {
        match event {
            Event::Started { step, steps } => self.show_progress(*step, *steps),
            Event::Step { metrics, steps, episodes_per_s, .. } => {
                let StepMetrics { step, loss, accuracy, learning_rate, .. } = *metrics;
                self.show_number(LOSS, f64::from(loss), format!("{loss:.4}"));
                if let Some(accuracy) = accuracy {
                    self.show_number(ACCURACY, accuracy, format!("{accuracy:.1} %"));
                }
                self.show_number(LEARNING_RATE, learning_rate, format!("{learning_rate:.2e}"));
                self.show_number(SPEED, *episodes_per_s, format!("{episodes_per_s:.1}"));
                self.show_progress(step, *steps);
            }
            Event::Validated { metrics: ValidationMetrics { validation, .. }, .. } => {
                let name = match validation.measure {
                    Measure::Accuracy => ACCURACY,
                    Measure::SquaredError => SQUARED_ERROR,
                };
                let state = number(name, validation.mean, validation.to_string());
                self.renderer.update_valid(state);
            }
            Event::Skipped { .. } | Event::StoppedEarly { .. } => {
                let line = event.line().unwrap_or_default();
                let entry = SerializedEntry::new(line.clone(), line);
                let entry = MetricEntry::new(id(NOTICE), entry);
                self.renderer.update_train(MetricState::Generic(entry));
            }
        }
    }

    fn show_number(&mut self, name: &str, value: f64, formatted: String) {
        self.renderer.update_train(number(name, value, formatted));
    }

    fn show_progress(&mut self, step: u64, steps: u64) {
        let count = |steps| usize::try_from(steps).unwrap_or(usize::MAX);
        let (items_processed, items_total) = (count(step), count(steps));
        let progress = TrainingProgress {
            progress: None,
            global_progress: Progress { items_processed, items_total },
            iteration: Some(items_processed),
        };
        self.renderer.render_train(progress, Vec::new());
    }
}

fn id(name: &str) -> MetricId {
    MetricId::new(Arc::new(name.to_owned()))
}

fn number(name: &str, value: f64, formatted: String) -> MetricState {
    let value = NumericEntry::Value(value);
    let entry = SerializedEntry::new(formatted, value.serialize());
    MetricState::Numeric(MetricEntry::new(id(name), entry), value)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use burn_train::renderer::{
        EvaluationName, EvaluationProgress, MetricsRendererEvaluation, MetricsRendererTraining,
        ProgressType,
    };

    use super::*;
    use crate::phase::PhaseTimes;
    use crate::train::Score;

    /// Keeps a line for each metric and each progress.
    #[derive(Clone, Default)]
    struct Recording {
        lines: Arc<Mutex<Vec<String>>>,
        metrics: Arc<Mutex<Vec<MetricId>>>,
    }

    impl Recording {
        fn record(&self, part: &str, state: MetricState) {
            let (entry, value) = match state {
                MetricState::Numeric(entry, value) => (entry, value.current().to_string()),
                MetricState::Generic(entry) => (entry, "text".to_owned()),
            };
            let metrics = self.metrics.lock().unwrap();
            assert!(metrics.contains(&entry.metric_id), "{:?} is registered", entry.metric_id);
            let text = entry.serialized_entry.formatted;
            self.lines.lock().unwrap().push(format!("{part} {value}: {text}"));
        }

        fn lines(&self) -> Vec<String> {
            std::mem::take(&mut self.lines.lock().unwrap())
        }
    }

    impl MetricsRendererTraining for Recording {
        fn update_train(&mut self, state: MetricState) {
            self.record("train", state);
        }

        fn update_valid(&mut self, state: MetricState) {
            self.record("valid", state);
        }

        fn render_train(&mut self, item: TrainingProgress, _: Vec<ProgressType>) {
            let Progress { items_processed, items_total } = item.global_progress;
            self.lines.lock().unwrap().push(format!("{items_processed}/{items_total}"));
        }

        fn render_valid(&mut self, _: TrainingProgress, _: Vec<ProgressType>) {
            unreachable!("a validation has no progress of its own");
        }
    }

    impl MetricsRendererEvaluation for Recording {
        fn update_test(&mut self, _: EvaluationName, _: MetricState) {
            unreachable!("training does not test");
        }

        fn render_test(&mut self, _: EvaluationProgress, _: Vec<ProgressType>) {
            unreachable!("training does not test");
        }
    }

    impl MetricsRenderer for Recording {
        fn manual_close(&mut self) {
            unreachable!("the dashboard closes with its training");
        }

        fn register_metric(&mut self, definition: MetricDefinition) {
            self.metrics.lock().unwrap().push(definition.metric_id);
        }
    }

    fn step(accuracy: Option<f64>) -> Event {
        let (loss, learning_rate, phase_ms) = (0.5, 1e-3, PhaseTimes::default());
        let metrics =
            StepMetrics { step: 3, loss, accuracy, learning_rate, loss_scale: None, phase_ms };
        Event::Step { metrics, steps: 10, episodes_per_s: 8.0, seconds_left: 1.0 }
    }

    fn validated(measure: Measure, mean: f64) -> Event {
        let validation = Score { measure, mean, ci95: 0.25 };
        Event::Validated { metrics: ValidationMetrics { step: 3, validation }, best: true }
    }

    #[test]
    fn a_step_of_a_classifier_shows_its_numbers_and_the_progress() {
        let recording = Recording::default();
        let mut dashboard = Dashboard::new(recording.clone());
        dashboard.show(&Event::Started { step: 2, steps: 10 });
        dashboard.show(&step(Some(75.0)));
        let expected = [
            "2/10",
            "train 0.5: 0.5000",
            "train 75: 75.0 %",
            "train 0.001: 1.00e-3",
            "train 8: 8.0",
            "3/10",
        ];
        assert_eq!(recording.lines(), expected);
        dashboard.show(&validated(Measure::Accuracy, 80.0));
        assert_eq!(recording.lines(), ["valid 80: 80.00 ± 0.25 %"]);
    }

    #[test]
    fn a_step_of_a_regression_shows_no_accuracy() {
        let recording = Recording::default();
        let mut dashboard = Dashboard::new(recording.clone());
        dashboard.show(&step(None));
        assert_eq!(recording.lines().len(), 4);
        dashboard.show(&validated(Measure::SquaredError, 0.5));
        assert_eq!(recording.lines(), ["valid 0.5: 0.5000 ± 0.2500 squared error"]);
    }

    #[test]
    fn a_skipped_step_and_an_early_stop_are_notices() {
        let recording = Recording::default();
        let mut dashboard = Dashboard::new(recording.clone());
        dashboard.show(&Event::Skipped { step: 3, loss_scale: 64.0 });
        dashboard.show(&Event::StoppedEarly { step: 7 });
        let lines = recording.lines();
        assert!(lines[0].contains("step 4 again"), "{lines:?}");
        assert_eq!(lines[1], "train text: stopped early after step 7");
    }
}
