use std::marker::PhantomData;

use burn::backend::Flex;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_train::metric::{AccuracyInput, Adaptor, ItemLazy, LossInput};

use crate::episode::{Classification, TaskKind};

/// What a step on some tasks tells the metrics, still on the device.
pub struct Outcome<B: Backend, K> {
    /// Mean loss over all queries, `[1]`.
    pub loss: Tensor<B, 1>,
    /// The measure of each task, `[t]`; its mean over the meta-batch in training, `[1]`.
    pub scores: Tensor<B, 1>,
    /// Number of tasks.
    pub tasks: usize,
    /// Queries of all tasks.
    pub queries: usize,
    /// What the tasks ask for.
    pub kind: PhantomData<K>,
}

/// An [`Outcome`] that has been read.
///
/// Serves Burn's `LossMetric`, with a mean over tasks; its `AccuracyMetric` if the tasks ask for a
/// [`Classification`], with a mean over queries; and [`MeanScore`](super::MeanScore).
#[derive(Clone, Debug)]
pub struct HostOutcome<K> {
    /// Mean loss over all queries.
    pub loss: f32,
    /// The measure of each task, or its mean over the meta-batch alone.
    pub scores: Vec<f64>,
    /// Number of tasks.
    pub tasks: usize,
    /// Queries of all tasks.
    pub queries: usize,
    /// What the tasks ask for.
    pub kind: PhantomData<K>,
}

impl<B: Backend, K: TaskKind> ItemLazy for Outcome<B, K> {
    type ItemSync = HostOutcome<K>;

    fn sync(self) -> HostOutcome<K> {
        let Self { loss, scores, tasks, queries, kind } = self;
        let loss = loss.into_data().iter::<f32>().sum();
        let scores = scores.into_data().iter::<f64>().collect();
        HostOutcome { loss, scores, tasks, queries, kind }
    }
}

impl<K: TaskKind> Adaptor<LossInput<Flex>> for HostOutcome<K> {
    /// One value for each task, so that batches count by their tasks.
    fn adapt(&self) -> LossInput<Flex> {
        LossInput::new(Tensor::full([self.tasks], self.loss, &Default::default()))
    }
}

impl Adaptor<AccuracyInput<Flex>> for HostOutcome<Classification> {
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

impl<K: TaskKind> Adaptor<Self> for HostOutcome<K> {
    fn adapt(&self) -> Self {
        self.clone()
    }
}
