use std::ops::Range;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::{BnStatistics, Classifier, Encoder};

use crate::learners::Adapted;

/// The classifiers that a [`Maml`](super::Maml) adapted to tasks.
#[derive(Clone, Debug)]
pub struct AdaptedMaml<B: Backend, E: Encoder<B>> {
    /// Groups of tasks, each a classifier with a lane for every one of them.
    groups: Vec<(Range<usize>, Classifier<B, E>)>,
    statistics: BnStatistics,
}

impl<B: Backend, E: Encoder<B>> AdaptedMaml<B, E> {
    pub(super) fn new(
        groups: Vec<(Range<usize>, Classifier<B, E>)>,
        statistics: BnStatistics,
    ) -> Self {
        Self { groups, statistics }
    }
}

impl<B: Backend, E: Encoder<B>> Adapted<B> for AdaptedMaml<B, E> {
    fn predict(&self, queries: Tensor<B, 5>) -> Tensor<B, 3> {
        let logits = self.groups.iter().map(|(tasks, classifier)| {
            let queries = queries.clone().narrow(0, tasks.start, tasks.len());
            classifier.forward_lanes(queries, self.statistics)
        });
        Tensor::cat(logits.collect(), 0)
    }
}
