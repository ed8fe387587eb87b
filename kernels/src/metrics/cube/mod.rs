//! Metrics on a device: matrix products by Burn, and kernels for everything around them.
//!
//! Elements are f32, f16 or bf16; sums, lengths and the softmax are f32 throughout.

mod forms;
mod gradients;
mod loss;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Tensor, TensorMetadata};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use super::{FusedMetrics, LossCall};
use crate::distances::{self, Metric};
use crate::host::{unwrap, wrap};
use crate::layers::goes_into_f32;
use crate::{proto_loss, prototypes};
use forms::Forms;

impl<R, F, I, BT> FusedMetrics for CubeBackend<R, F, I, BT>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    fn takes(found: DType) -> bool {
        goes_into_f32(found)
    }

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

    fn scores(
        metric: Metric,
        queries: FloatTensor<Self>,
        prototypes: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        if is_empty([&queries, &prototypes]) {
            let [queries, prototypes] = [queries, prototypes].map(wrap::<Self, 3>);
            return unwrap(distances::reference::scores(queries, prototypes, metric));
        }
        Forms::of(metric, [queries, prototypes].map(into_contiguous)).scores()
    }

    fn scores_gradients(
        metric: Metric,
        g: FloatTensor<Self>,
        of: [FloatTensor<Self>; 2],
    ) -> [FloatTensor<Self>; 2] {
        if is_empty(of.each_ref()) {
            let [queries, prototypes] = of.map(wrap::<Self, 3>);
            let found =
                distances::reference::scores_gradients(wrap(g), queries, prototypes, metric);
            return found.map(unwrap);
        }
        let forms = Forms::of(metric, of.map(into_contiguous));
        let weights = forms.weights(into_contiguous(g));
        gradients::gradients(&forms, weights, 1.0)
    }

    fn proto_loss(
        call: LossCall,
        of: [FloatTensor<Self>; 2],
        labels: IntTensor<Self>,
    ) -> [FloatTensor<Self>; 2] {
        if labels.meta.num_elements() == 0 {
            return without_queries::<Self>(&of[0], &labels);
        }
        if is_empty(of.each_ref()) {
            let [queries, prototypes] = of.map(wrap::<Self, 3>);
            let labels = Tensor::from_primitive(labels);
            let LossCall { metric, scale } = call;
            let found =
                proto_loss::reference::proto_loss(queries, prototypes, labels, metric, scale);
            return [unwrap(found.loss), unwrap(found.correct)];
        }
        let forms = Forms::of(call.metric, of.map(into_contiguous));
        let found = loss::loss(&forms, into_contiguous(labels), call.scale, false);
        [found.loss, found.correct]
    }

    fn proto_loss_gradients(
        call: LossCall,
        of: [FloatTensor<Self>; 2],
        labels: IntTensor<Self>,
    ) -> [FloatTensor<Self>; 4] {
        if is_empty(of.each_ref()) {
            let [loss, correct] = Self::proto_loss(call, of.clone(), labels);
            let [by_queries, by_prototypes] = of.map(|x| unwrap(wrap::<Self, 3>(x).zeros_like()));
            return [loss, correct, by_queries, by_prototypes];
        }
        let forms = Forms::of(call.metric, of.map(into_contiguous));
        let found = loss::loss(&forms, into_contiguous(labels), call.scale, true);
        let weights = found.weights.expect("asked for");
        let factor = call.scale / forms.queries() as f64;
        let [by_queries, by_prototypes] = gradients::gradients(&forms, weights, factor);
        [found.loss, found.correct, by_queries, by_prototypes]
    }
}

/// A loss that is not a number, and nothing to be correct.
fn without_queries<B: Backend>(
    queries: &FloatTensor<B>,
    labels: &IntTensor<B>,
) -> [FloatTensor<B>; 2] {
    let (device, dtype) = (B::float_device(queries), queries.dtype());
    let loss = Tensor::<B, 1>::full([1], f32::NAN, (&device, dtype));
    let [tasks, count] = labels.shape().dims();
    [unwrap(loss), unwrap(Tensor::<B, 2>::empty([tasks, count], (&device, dtype)))]
}

fn is_empty<R: CubeRuntime>(of: [&burn_cubecl::tensor::CubeTensor<R>; 2]) -> bool {
    of.iter().any(|x| x.meta.num_elements() == 0)
}
