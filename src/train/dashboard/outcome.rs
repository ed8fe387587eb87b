use std::marker::PhantomData;

use burn::backend::Flex;
use burn::tensor::{Tensor, TensorData};
use burn_train::metric::{AccuracyInput, Adaptor, ItemLazy, LossInput};

use crate::episode::{Classification, TaskKind};

/// What a step on some tasks tells the metrics.
///
/// Serves Burn's `LossMetric`, with a mean over tasks; its `AccuracyMetric` if the tasks ask for a
/// [`Classification`], with a mean over queries; and [`MeanScore`](super::MeanScore).
#[derive(Clone, Debug)]
pub struct Outcome<K> {
    /// Mean loss over all queries.
    pub loss: f32,
    /// The measure of each task; in training its mean over the meta-batch alone.
    pub scores: Vec<f64>,
    /// Number of tasks.
    pub tasks: usize,
    /// Queries of all tasks.
    pub queries: usize,
    /// What the tasks ask for.
    pub kind: PhantomData<K>,
}

impl<K: TaskKind> ItemLazy for Outcome<K> {
    type ItemSync = Self;

    fn sync(self) -> Self {
        self
    }
}

impl<K: TaskKind> Adaptor<LossInput<Flex>> for Outcome<K> {
    /// One value for each task, so that batches count by their tasks.
    fn adapt(&self) -> LossInput<Flex> {
        LossInput::new(Tensor::full([self.tasks], self.loss, &Default::default()))
    }
}

impl Adaptor<AccuracyInput<Flex>> for Outcome<Classification> {
    /// Two classes for each query, rightly and wrongly classified, of which it should have the first.
    fn adapt(&self) -> AccuracyInput<Flex> {
        let mean = self.scores.iter().sum::<f64>() / self.scores.len() as f64;
        // A share of whole queries, up to rounding.
        let right = (mean * self.queries as f64).round() as usize;
        let row = |query| if query < right { [1.0f32, 0.0] } else { [0.0, 1.0] };
        let rows = (0..self.queries).flat_map(row).collect();
        let device = Default::default();
        let rows = TensorData::new(rows, [self.queries, 2]);
        AccuracyInput::new(Tensor::from_data(rows, &device), Tensor::zeros([self.queries], &device))
    }
}

impl<K: TaskKind> Adaptor<Self> for Outcome<K> {
    fn adapt(&self) -> Self {
        self.clone()
    }
}
