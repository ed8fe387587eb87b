//! Fused metrics of every host backend.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Int, Tensor, TensorMetadata};

use super::{FusedMetrics, LossCall, LossOutput};
use crate::distances::Metric;
use crate::distances::cpu::{self, Dims, Found};
use crate::environment::chosen;
use crate::host::{HostBackend, elements, unwrap, wrap, write_like};
use crate::prototypes;

impl<B: HostBackend> FusedMetrics for B {
    fn class_means(x: FloatTensor<B>, labels: IntTensor<B>, ways: usize) -> FloatTensor<B> {
        let [t, n, d] = x.shape().dims();
        let labels = read::<B>(labels, ways);
        let means = prototypes::cpu::class_means(&elements::<B>(&x), &labels, [n, ways, d]);
        write_like::<B, 3>(&x, means, [t, ways, d])
    }

    fn class_spread(g: FloatTensor<B>, labels: IntTensor<B>) -> FloatTensor<B> {
        let [t, ways, d] = g.shape().dims();
        let labels = read::<B>(labels, ways);
        let n = labels.len() / t.max(1);
        let rows = prototypes::cpu::class_spread(&elements::<B>(&g), &labels, [n, ways, d]);
        write_like::<B, 3>(&g, rows, [t, n, d])
    }

    fn scores(metric: Metric, [queries, prototypes]: [FloatTensor<B>; 2]) -> FloatTensor<B> {
        let dims = call_dims::<B>(&queries, &prototypes);
        let (q, p) = (elements::<B>(&queries), elements::<B>(&prototypes));
        let scores = cpu::scores(chosen(), metric, [&q, &p], dims);
        write_like::<B, 3>(&queries, scores, [dims.tasks, dims.queries, dims.ways])
    }

    fn scores_gradients(
        metric: Metric,
        g: FloatTensor<B>,
        [queries, prototypes]: [FloatTensor<B>; 2],
    ) -> [FloatTensor<B>; 2] {
        let dims = call_dims::<B>(&queries, &prototypes);
        let [g, q, p] = &[&g, &queries, &prototypes].map(elements::<B>);
        write_gradients::<B>(
            &queries,
            dims,
            cpu::scores_gradients(chosen(), metric, g, [q, p], dims),
        )
    }

    fn proto_loss(
        call: LossCall,
        [queries, prototypes]: [FloatTensor<B>; 2],
        labels: IntTensor<B>,
        gradients: bool,
    ) -> LossOutput<FloatTensor<B>> {
        let dims = call_dims::<B>(&queries, &prototypes);
        let labels = read::<B>(labels, dims.ways);
        let [q, p] = &[&queries, &prototypes].map(elements::<B>);
        let Found { loss, correct, gradients } =
            cpu::loss(chosen(), call, [q, p], &labels, dims, gradients);
        LossOutput {
            loss: write_like::<B, 1>(&queries, vec![loss], [1]),
            correct: write_like::<B, 2>(&queries, correct, [dims.tasks, dims.queries]),
            gradients: gradients.map(|gradients| write_gradients::<B>(&queries, dims, gradients)),
        }
    }

    fn scaled(x: FloatTensor<B>, factor: FloatTensor<B>) -> FloatTensor<B> {
        // One is what a backward pass begins with.
        match elements::<B>(&factor)[0] {
            1.0 => x,
            factor => unwrap(wrap::<B, 3>(x) * factor),
        }
    }
}

fn call_dims<B: HostBackend>(queries: &FloatTensor<B>, prototypes: &FloatTensor<B>) -> Dims {
    let [tasks, queries, features] = queries.shape().dims();
    let [_, ways, _] = prototypes.shape().dims();
    Dims { tasks, queries, ways, features }
}

fn write_gradients<B: HostBackend>(
    like: &FloatTensor<B>,
    dims: Dims,
    [by_queries, by_prototypes]: [Vec<f32>; 2],
) -> [FloatTensor<B>; 2] {
    let Dims { tasks, queries, ways, features } = dims;
    [
        write_like::<B, 3>(like, by_queries, [tasks, queries, features]),
        write_like::<B, 3>(like, by_prototypes, [tasks, ways, features]),
    ]
}

/// Labels in row-major order. Panics if one is not below `ways`.
fn read<B: HostBackend>(labels: IntTensor<B>, ways: usize) -> Vec<usize> {
    let labels = Tensor::<B, 2, Int>::from_primitive(labels).into_data();
    let class = |label: i64| match usize::try_from(label) {
        Ok(class) if class < ways => class,
        _ => panic!("a label is {label}, but there are {ways} classes"),
    };
    labels.iter::<i64>().map(class).collect()
}
