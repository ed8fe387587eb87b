//! Fused metrics under one level of autodiff, over any backend that has them.

use std::sync::Arc;

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Shape, TensorMetadata};

use super::{FusedMetrics, LossCall};
use crate::distances::{self, Metric};
use crate::host::{unwrap, wrap};
use crate::variadic_op::{self, OptionalTensors, VariadicBackward};
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

    fn split_at(x: FloatTensor<Self>, at: usize) -> [FloatTensor<Self>; 2] {
        let parts = B::split_at(x.primitive.clone(), at);
        let shapes = parts.each_ref().map(TensorMetadata::shape);
        let (device, dtype) = (B::float_device(&parts[0]), parts[0].dtype());
        let of_parts = SplitBackward { shapes, device, dtype };
        let parts = variadic_op::record::<B, C>(&[x], || Arc::new(of_parts), parts.into());
        parts.try_into().expect("two results of two parts")
    }
}

/// The gradient of a split: those of the parts, concatenated.
struct SplitBackward<B: FusedMetrics> {
    shapes: [Shape; 2],
    device: B::Device,
    dtype: DType,
}

impl<B: FusedMetrics> VariadicBackward<B> for SplitBackward<B> {
    fn gradients(&self, results: OptionalTensors<B>, wanted: &[bool]) -> OptionalTensors<B> {
        if wanted != [true] {
            return vec![None];
        }
        let parts = results.into_iter().zip(&self.shapes).map(|(gradient, shape)| {
            let zeros = || B::float_zeros(shape.clone(), &self.device, self.dtype.into());
            gradient.unwrap_or_else(zeros)
        });
        vec![Some(B::float_cat(parts.collect(), 1))]
    }
}
