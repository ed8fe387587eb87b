use std::marker::PhantomData;
use std::ops::Range;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::BnStatistics;

use crate::learners::{Adapted, Network};

/// The networks that a [`Maml`](super::Maml) adapted to tasks.
#[derive(Clone, Debug)]
pub struct AdaptedMaml<B: Backend, N> {
    /// Groups of tasks, each a network with a lane for every one of them.
    groups: Vec<(Range<usize>, N)>,
    statistics: BnStatistics,
    _backend: PhantomData<B>,
}

impl<B: Backend, N: Network<B>> AdaptedMaml<B, N> {
    pub(super) fn new(groups: Vec<(Range<usize>, N)>, statistics: BnStatistics) -> Self {
        Self { groups, statistics, _backend: PhantomData }
    }
}

impl<B: Backend, N: Network<B>> Adapted<B> for AdaptedMaml<B, N> {
    fn predict(&self, queries: Tensor<B, 5>) -> Tensor<B, 3> {
        let logits = self.groups.iter().map(|(tasks, network)| {
            let queries = queries.clone().narrow(0, tasks.start, tasks.len());
            network.forward_lanes(queries, self.statistics)
        });
        Tensor::cat(logits.collect(), 0)
    }
}
