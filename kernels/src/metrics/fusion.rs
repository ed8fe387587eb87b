//! Metrics recorded by Burn's fusion.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Shape, TensorMetadata};
use burn_fusion::{Fusion, FusionBackend};

use super::{EpisodeLoss, FusedMetrics, LossCall, LossOutput};
use crate::distances::Metric;
use crate::fusion::{all, like, record, record_floats, record_one};

impl<B: FusionBackend + FusedMetrics> FusedMetrics for Fusion<B> {
    fn class_means(
        x: FloatTensor<Self>,
        labels: IntTensor<Self>,
        ways: usize,
    ) -> FloatTensor<Self> {
        let ([tasks, _, features], dtype) = (x.shape().dims(), x.dtype());
        let output = (Shape::new([tasks, ways, features]), dtype);
        record_one::<B, _>("class_means", vec![x, labels], output, move |given| {
            B::class_means(given.float(0), given.int(1), ways)
        })
    }

    fn class_spread(g: FloatTensor<Self>, labels: IntTensor<Self>) -> FloatTensor<Self> {
        let ([tasks, _, features], dtype) = (g.shape().dims(), g.dtype());
        let [_, examples] = labels.shape().dims();
        let output = (Shape::new([tasks, examples, features]), dtype);
        record_one::<B, _>("class_spread", vec![g, labels], output, |given| {
            B::class_spread(given.float(0), given.int(1))
        })
    }

    fn scores(metric: Metric, of: [FloatTensor<Self>; 2]) -> FloatTensor<Self> {
        let [queries, prototypes] = &of;
        let [tasks, count, _] = queries.shape().dims();
        let [_, ways, _] = prototypes.shape().dims();
        let output = (Shape::new([tasks, count, ways]), queries.dtype());
        record_floats::<B, 2>("scores", of, output, move |of| B::scores(metric, of))
    }

    fn scores_gradients(
        metric: Metric,
        g: FloatTensor<Self>,
        of: [FloatTensor<Self>; 2],
    ) -> [FloatTensor<Self>; 2] {
        let outputs = of.each_ref().map(like).into();
        let inputs = [g].into_iter().chain(of).collect();
        all(record::<B, _>("scores_gradients", inputs, outputs, move |given| {
            B::scores_gradients(metric, given.float(0), given.floats(1)).into()
        }))
    }

    fn proto_loss(
        call: LossCall,
        of: [FloatTensor<Self>; 2],
        labels: IntTensor<Self>,
        gradients: bool,
    ) -> LossOutput<FloatTensor<Self>> {
        let of_gradients = of.each_ref().map(like).into_iter().filter(|_| gradients);
        let outputs = [Shape::new([1]), labels.shape()].map(|shape| (shape, of[0].dtype()));
        let outputs = outputs.into_iter().chain(of_gradients).collect();
        let inputs = of.into_iter().chain([labels]).collect();
        let mut results = record::<B, _>("proto_loss", inputs, outputs, move |given| {
            let output = B::proto_loss(call, given.floats(0), given.int(2), gradients);
            let gradients = output.gradients.into_iter().flatten();
            [output.loss, output.correct].into_iter().chain(gradients).collect()
        });
        let gradients = gradients.then(|| all(results.split_off(2)));
        let [loss, correct] = all(results);
        LossOutput { loss, correct, gradients }
    }

    fn episode_loss(
        call: LossCall,
        x: FloatTensor<Self>,
        labels: [IntTensor<Self>; 2],
        ways: usize,
        gradient: bool,
    ) -> EpisodeLoss<FloatTensor<Self>> {
        let one = (Shape::new([1]), x.dtype());
        let of_gradient = gradient.then(|| like(&x));
        let outputs = [one.clone(), one].into_iter().chain(of_gradient).collect();
        let inputs = [x].into_iter().chain(labels).collect();
        let mut results = record::<B, _>("episode_loss", inputs, outputs, move |given| {
            let labels = [given.int(1), given.int(2)];
            let output = B::episode_loss(call, given.float(0), labels, ways, gradient);
            [output.loss, output.accuracy].into_iter().chain(output.gradient).collect()
        });
        let gradient = results.split_off(2).pop();
        let [loss, accuracy] = all(results);
        EpisodeLoss { loss, accuracy, gradient }
    }
}
