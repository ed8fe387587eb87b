//! Metrics on a device: the loss of whole episodes by kernels of its own, everything else by matrix products and
//! kernels around them.
//!
//! Elements are f32, f16 or bf16; sums, lengths and the softmax are f32 throughout.

mod episode;
mod forms;
mod gradients;
mod loss;

use burn::tensor::Tensor;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use super::{EpisodeLoss, FusedMetrics, LossCall, LossOutput, composed_episode_loss};
use crate::cube::{into_contiguous, zeros};
use crate::distances::Metric;
use crate::host::unwrap;
use crate::prototypes;
use forms::Forms;

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> FusedMetrics
    for CubeBackend<R, F, I, BT>
{
    fn class_means(
        x: FloatTensor<Self>,
        labels: IntTensor<Self>,
        ways: usize,
    ) -> FloatTensor<Self> {
        prototypes::cube::class_means(x, labels, ways)
    }

    fn class_spread(g: FloatTensor<Self>, labels: IntTensor<Self>) -> FloatTensor<Self> {
        prototypes::cube::class_spread(g, labels)
    }

    fn scores(metric: Metric, of: [FloatTensor<Self>; 2]) -> FloatTensor<Self> {
        if is_empty(of.each_ref()) {
            // Nothing to score, or nothing in common.
            let [queries, prototypes] = of;
            let [tasks, count, _] = queries.meta.shape().dims();
            let [_, ways, _] = prototypes.meta.shape().dims();
            return zeros(&queries, [tasks, count, ways], queries.dtype);
        }
        Forms::of(metric, of.map(into_contiguous)).scores()
    }

    fn scores_gradients(
        metric: Metric,
        g: FloatTensor<Self>,
        of: [FloatTensor<Self>; 2],
    ) -> [FloatTensor<Self>; 2] {
        if is_empty(of.each_ref()) {
            return of.map(|x| zeros(&x, x.meta.shape().clone(), x.dtype));
        }
        let forms = Forms::of(metric, of.map(into_contiguous));
        let weights = forms.weights(into_contiguous(g));
        gradients::gradients(&forms, weights, 1.0)
    }

    fn proto_loss(
        call: LossCall,
        of: [FloatTensor<Self>; 2],
        labels: IntTensor<Self>,
        gradients: bool,
    ) -> LossOutput<FloatTensor<Self>> {
        let [tasks, ways, features] = of[1].meta.shape().dims();
        let [_, count] = labels.meta.shape().dims();
        let is_empty = is_empty(of.each_ref());
        let no_gradients = (gradients && is_empty)
            .then(|| of.each_ref().map(|x| zeros(x, x.meta.shape().clone(), x.dtype)));
        if tasks * count * ways == 0 {
            let loss = Tensor::<Self, 1>::full([1], f32::NAN, (&of[0].device, of[0].dtype));
            let correct = zeros(&of[0], [tasks, count], of[0].dtype);
            return LossOutput { loss: unwrap(loss), correct, gradients: no_gradients };
        }
        // Nothing that tells the classes apart is as one feature that is the same in all.
        let of = match features {
            0 => [(count, &of[0]), (ways, &of[1])]
                .map(|(rows, of)| zeros(of, [tasks, rows, 1], of.dtype)),
            _ => of,
        };
        let forms = Forms::of(call.metric, of.map(into_contiguous));
        let mut output =
            loss::loss(&forms, into_contiguous(labels), call.scale, gradients && !is_empty);
        output.gradients = output.gradients.or(no_gradients);
        output
    }

    fn episode_loss(
        call: LossCall,
        x: FloatTensor<Self>,
        labels: [IntTensor<Self>; 2],
        ways: usize,
        gradient: bool,
    ) -> EpisodeLoss<FloatTensor<Self>> {
        let [tasks, _, features] = x.meta.shape().dims();
        let [examples, queries] = labels.each_ref().map(|labels| labels.meta.shape()[1]);
        if !episode::takes([tasks, examples, queries, ways, features]) {
            return composed_episode_loss::<Self>(call, x, labels, ways, gradient);
        }
        let labels = labels.map(into_contiguous);
        episode::loss(call, into_contiguous(x), labels, ways, gradient)
    }

    fn scaled(x: FloatTensor<Self>, factor: FloatTensor<Self>) -> FloatTensor<Self> {
        gradients::scaled(x, factor)
    }
}

fn is_empty<R: CubeRuntime>(of: [&burn_cubecl::tensor::CubeTensor<R>; 2]) -> bool {
    of.iter().any(|x| x.meta.num_elements() == 0)
}
