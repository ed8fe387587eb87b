use std::sync::{Arc, Mutex};

use burn_train::metric::{MetricDefinition, MetricId, NumericEntry};
use burn_train::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, ProgressType, TrainingProgress,
};

/// Keeps what a dashboard would show.
#[derive(Clone, Default)]
pub(super) struct Recording {
    training: Arc<Mutex<Vec<ShownMetric>>>,
    validation: Arc<Mutex<Vec<ShownMetric>>>,
}

/// A metric after a batch.
#[derive(Clone)]
struct ShownMetric {
    metric: MetricId,
    value: f64,
    count: usize,
    text: String,
}

impl Recording {
    /// The mean of a metric over the batches of all training epochs.
    pub(super) fn trained(&self, metric: &str) -> f64 {
        mean(&self.training, metric)
    }

    /// The mean of a metric over the batches of all validations.
    pub(super) fn validated(&self, metric: &str) -> f64 {
        mean(&self.validation, metric)
    }

    /// What a metric of the validation showed last.
    pub(super) fn last_text(&self, metric: &str) -> String {
        let shown = self.validation.lock().unwrap();
        shown.iter().rfind(|shown| shown.metric == id(metric)).unwrap().text.clone()
    }
}

fn id(metric: &str) -> MetricId {
    MetricId::new(Arc::new(metric.to_owned()))
}

/// Weighted by what the values count for.
fn mean(all: &Mutex<Vec<ShownMetric>>, metric: &str) -> f64 {
    let all = all.lock().unwrap();
    let of_it = || all.iter().filter(|shown| shown.metric == id(metric));
    let count: usize = of_it().map(|shown| shown.count).sum();
    assert!(count > 0, "nothing was shown of {metric}");
    of_it().map(|shown| shown.value * shown.count as f64).sum::<f64>() / count as f64
}

fn keep(all: &Mutex<Vec<ShownMetric>>, state: MetricState) {
    let MetricState::Numeric(entry, NumericEntry::Aggregated { aggregated_value, count }) = state
    else {
        panic!("{state:?}")
    };
    let (metric, text) = (entry.metric_id, entry.serialized_entry.formatted);
    all.lock().unwrap().push(ShownMetric { metric, value: aggregated_value, count, text });
}

impl MetricsRendererTraining for Recording {
    fn update_train(&mut self, state: MetricState) {
        keep(&self.training, state);
    }

    fn update_valid(&mut self, state: MetricState) {
        keep(&self.validation, state);
    }

    fn render_train(&mut self, _item: TrainingProgress, _indicators: Vec<ProgressType>) {}

    fn render_valid(&mut self, _item: TrainingProgress, _indicators: Vec<ProgressType>) {}
}

impl MetricsRendererEvaluation for Recording {
    fn update_test(&mut self, _name: EvaluationName, _state: MetricState) {}

    fn render_test(&mut self, _item: EvaluationProgress, _indicators: Vec<ProgressType>) {}
}

impl MetricsRenderer for Recording {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, _definition: MetricDefinition) {}
}
