//! Fused metrics under one level of autodiff, over any backend that has them.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::DType;
use burn::tensor::ops::{FloatTensor, IntTensor};

use super::{FusedMetrics, LossCall};
use crate::distances::{self, Metric};
use crate::host::{unwrap, wrap};
use crate::{proto_loss, prototypes};

impl<B: FusedMetrics, C: CheckpointStrategy> FusedMetrics for Autodiff<B, C> {
    fn takes(found: DType) -> bool {
        B::takes(found)
    }

    fn class_means(
        x: FloatTensor<Self>,
        labels: IntTensor<Self>,
        ways: usize,
    ) -> FloatTensor<Self> {
        prototypes::autodiff::class_means::<B, C>(x, labels, ways)
    }

    fn class_spread(g: FloatTensor<Self>, labels: IntTensor<Self>) -> FloatTensor<Self> {
        prototypes::autodiff::class_spread::<B, C>(g, labels)
    }

    fn scores(
        metric: Metric,
        queries: FloatTensor<Self>,
        prototypes: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        proto_loss::autodiff::scores::<B, C>(metric, queries, prototypes)
    }

    fn scores_gradients(
        metric: Metric,
        g: FloatTensor<Self>,
        of: [FloatTensor<Self>; 2],
    ) -> [FloatTensor<Self>; 2] {
        let [queries, prototypes] = of.map(wrap::<Self, 3>);
        distances::reference::scores_gradients(wrap(g), queries, prototypes, metric).map(unwrap)
    }

    fn proto_loss(
        call: LossCall,
        of: [FloatTensor<Self>; 2],
        labels: IntTensor<Self>,
    ) -> [FloatTensor<Self>; 2] {
        proto_loss::autodiff::loss::<B, C>(call, of, labels)
    }

    fn proto_loss_gradients(
        call: LossCall,
        of: [FloatTensor<Self>; 2],
        labels: IntTensor<Self>,
    ) -> [FloatTensor<Self>; 4] {
        proto_loss::autodiff::loss_gradients::<B, C>(call, of, labels)
    }
}
