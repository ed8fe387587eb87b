use std::marker::PhantomData;
use std::sync::Arc;

use burn_train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry,
    SerializedEntry,
};

use super::HostOutcome;
use crate::episode::{Measure, TaskKind};
use crate::train::Score;

/// What tasks are judged by, as a mean with its 95 % interval: the [`Score`] that an
/// [`Evaluator`](crate::train::Evaluator) finds.
///
/// Of a validation it is the mean over tasks. In training it is over meta-batches, while the learner
/// changes.
#[derive(Clone, Debug)]
pub struct MeanScore<K> {
    /// Of this epoch.
    all: Vec<f64>,
    /// How many of them came last.
    last: usize,
    kind: PhantomData<K>,
}

impl<K: TaskKind> MeanScore<K> {
    /// A metric without a value yet.
    pub fn new() -> Self {
        Self { all: Vec::new(), last: 0, kind: PhantomData }
    }

    /// Mean and interval over what was found since the epoch began.
    pub fn score(&self) -> Score {
        Score::of(K::MEASURE, &self.all)
    }

    fn entry(scores: &[f64]) -> NumericEntry {
        NumericEntry::Aggregated {
            aggregated_value: Score::of(K::MEASURE, scores).mean,
            count: scores.len(),
        }
    }
}

impl<K: TaskKind> Default for MeanScore<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: TaskKind> Metric for MeanScore<K> {
    type Input = HostOutcome<K>;

    fn name(&self) -> MetricName {
        Arc::new(match K::MEASURE {
            Measure::Accuracy => "Accuracy of tasks".to_owned(),
            Measure::SquaredError => "Squared error of tasks".to_owned(),
        })
    }

    fn attributes(&self) -> MetricAttributes {
        let unit = match K::MEASURE {
            Measure::Accuracy => Some("%".to_owned()),
            Measure::SquaredError => None,
        };
        NumericAttributes { unit, higher_is_better: K::MEASURE.improves(1.0, 0.0) }.into()
    }

    fn update(&mut self, found: &HostOutcome<K>, _metadata: &MetricMetadata) -> SerializedEntry {
        self.all.extend(&found.scores);
        self.last = found.scores.len();
        SerializedEntry::new(self.score().to_string(), self.value().serialize())
    }

    fn clear(&mut self) {
        *self = Self::new();
    }
}

impl<K: TaskKind> Numeric for MeanScore<K> {
    fn value(&self) -> NumericEntry {
        Self::entry(&self.all[self.all.len() - self.last..])
    }

    fn running_value(&self) -> NumericEntry {
        Self::entry(&self.all)
    }
}
