use std::ops::Range;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::BnStatistics;

use super::body::Body;
use crate::learners::{Adapted, Network};

/// The networks that a [`Maml`](super::Maml) adapted to tasks.
#[derive(Clone, Debug)]
pub struct AdaptedMaml<B: Backend, N> {
    pub(super) groups: Vec<Group<B, N>>,
    pub(super) statistics: BnStatistics,
}

/// Tasks that share a network, with a lane for each.
#[derive(Clone, Debug)]
pub(super) struct Group<B: Backend, N> {
    pub(super) tasks: Range<usize>,
    pub(super) network: N,
    /// True if all tasks share its body.
    pub(super) shared: bool,
    /// Inputs that every query goes through the network with, `[t, n, c, h, w]`; the other queries,
    /// where there are none.
    pub(super) companions: Option<Tensor<B, 5>>,
    /// Outputs of a task, the first of those of the network.
    pub(super) outputs: usize,
}

impl<B: Backend, N: Network<B>> Group<B, N> {
    fn predict(&self, queries: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        let forward = |inputs| {
            let all = Body::new(self.shared).forward(&self.network, inputs, statistics);
            if all.dims()[2] == self.outputs { all } else { all.narrow(2, 0, self.outputs) }
        };
        let Some(companions) = &self.companions else { return forward(queries) };
        let each = queries.split(1, 1).into_iter().map(|query| {
            let inputs = Tensor::cat(vec![companions.clone(), query], 1);
            let last = companions.dims()[1];
            forward(inputs).narrow(1, last, 1)
        });
        Tensor::cat(each.collect(), 1)
    }
}

impl<B: Backend, N: Network<B>> Adapted<B> for AdaptedMaml<B, N> {
    fn predict(&self, queries: Tensor<B, 5>) -> Tensor<B, 3> {
        let outputs = self.groups.iter().map(|group| {
            let queries = queries.clone().narrow(0, group.tasks.start, group.tasks.len());
            group.predict(queries, self.statistics)
        });
        Tensor::cat(outputs.collect(), 0)
    }
}
