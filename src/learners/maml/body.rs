use std::cell::OnceCell;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::TaskLossOptions;
use fewshot_models::BnStatistics;

use crate::episode::{Examples, TaskKind};
use crate::learners::Network;

/// Everything of a network before its head, for several tasks that go through it side by side.
pub(super) enum Body<B: Backend> {
    /// Each task has its own.
    PerTask,
    /// All share one, with what it made of the inputs, once it has: no inner step changes that.
    Shared(OnceCell<Tensor<B, 3>>),
}

impl<B: Backend> Body<B> {
    pub(super) fn new(shared: bool) -> Self {
        if shared { Self::Shared(OnceCell::new()) } else { Self::PerTask }
    }

    /// Outputs of the network, `[t, n, d]`; of a shared body always for the same inputs.
    pub(super) fn forward<N: Network<B>>(
        &self,
        network: &N,
        inputs: Tensor<B, 5>,
        statistics: BnStatistics,
    ) -> Tensor<B, 3> {
        let Self::Shared(features) = self else { return network.forward_lanes(inputs, statistics) };
        let features = features.get_or_init(|| network.features_shared(inputs, statistics));
        network.head_lanes(features.clone())
    }

    /// The sum over tasks of their mean losses, `[1]`, for its gradient alone.
    pub(super) fn inner_loss<N: Network<B>>(
        &self,
        network: &N,
        examples: &Examples<B>,
        statistics: BnStatistics,
    ) -> Tensor<B, 1> {
        let outputs = self.forward(network, examples.inputs.clone(), statistics);
        let options = TaskLossOptions { gradient_alone: true, ..Default::default() };
        N::Kind::loss_with(outputs, examples.targets.clone(), options)
    }
}
