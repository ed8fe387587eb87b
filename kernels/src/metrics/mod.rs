//! Dispatch of distances and what is computed from them: the trait a backend implements to fuse them, and
//! the table of its functions.
//!
//! Tensors carry `t` tasks: queries `[t, q, d]`, prototypes `[t, ways, d]`, labels `[t, q]` or
//! `[t, n]` from 0 to `ways - 1`.

mod autodiff;
#[cfg(feature = "cube")]
#[allow(clippy::too_many_arguments, clippy::assign_op_pattern)]
mod cube;
#[cfg(feature = "fusion")]
mod fusion;
mod host;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Tensor, TensorMetadata};

use crate::distances::Metric;
use crate::fallback::all_taken;
use crate::host::{unwrap, wrap, zeros};
use crate::registry::{self, function_table};

/// The arguments of [`proto_loss`](crate::proto_loss()) besides its tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossCall {
    /// The measure of closeness between a query and a prototype.
    pub metric: Metric,
    /// Factor of the scores in the softmax.
    pub scale: f64,
}

/// A loss with what comes with it.
#[derive(Clone, Debug)]
pub struct LossOutput<T> {
    /// `[1]`.
    pub loss: T,
    /// Not tracked, one for every query whose largest score is at its label, else zero, `[t, q]`.
    pub correct: T,
    /// By queries and by prototypes, if they were wanted.
    pub gradients: Option<[T; 2]>,
}

/// The loss of episodes with what comes with it.
#[derive(Clone, Debug)]
pub struct EpisodeLoss<T> {
    /// `[1]`.
    pub loss: T,
    /// Not tracked, the share of queries whose largest score is at their label, `[1]`.
    pub accuracy: T,
    /// By the embeddings, `[t, n + q, d]`, if it was wanted.
    pub gradient: Option<T>,
}

/// A backend with fused bodies for prototypes, distances and losses over them; floats are of one
/// type, and shapes have been checked.
pub trait FusedMetrics: Backend {
    /// The mean of the rows of each class, `[t, n, d]` to `[t, ways, d]`; NaN without a row.
    fn class_means(x: FloatTensor<Self>, labels: IntTensor<Self>, ways: usize)
    -> FloatTensor<Self>;

    /// The transpose of [`class_means`](Self::class_means): for each of the labels `[t, n]` the row
    /// of `g` `[t, ways, d]`, divided by the number of rows of its class.
    fn class_spread(g: FloatTensor<Self>, labels: IntTensor<Self>) -> FloatTensor<Self>;

    /// Scores `[t, q, ways]` of queries and prototypes, see [`scores`](crate::scores).
    fn scores(metric: Metric, of: [FloatTensor<Self>; 2]) -> FloatTensor<Self>;

    /// The gradients of `<g, scores(queries, prototypes)>` by queries and by prototypes.
    fn scores_gradients(
        metric: Metric,
        g: FloatTensor<Self>,
        of: [FloatTensor<Self>; 2],
    ) -> [FloatTensor<Self>; 2];

    /// The mean over all queries of `-log softmax(scale * scores)` at their labels, with its `gradients` if
    /// they are wanted.
    fn proto_loss(
        call: LossCall,
        of: [FloatTensor<Self>; 2],
        labels: IntTensor<Self>,
        gradients: bool,
    ) -> LossOutput<FloatTensor<Self>>;

    /// [`proto_loss`](Self::proto_loss) of episodes whose embeddings `x` `[t, n + q, d]` are those of the
    /// support, then of the queries, for labels `[t, n]` and `[t, q]`; there is an example and a query.
    fn episode_loss(
        call: LossCall,
        x: FloatTensor<Self>,
        labels: [IntTensor<Self>; 2],
        ways: usize,
        gradient: bool,
    ) -> EpisodeLoss<FloatTensor<Self>> {
        composed_episode_loss::<Self>(call, x, labels, ways, gradient)
    }

    /// See [`split_at`]; neither part is empty.
    fn split_at(x: FloatTensor<Self>, at: usize) -> [FloatTensor<Self>; 2] {
        sliced::<Self>(wrap(x), at).map(unwrap)
    }

    /// `x` `[t, n, d]` times a factor `[1]`.
    fn scaled(x: FloatTensor<Self>, factor: FloatTensor<Self>) -> FloatTensor<Self> {
        unwrap(wrap::<Self, 3>(x) * wrap::<Self, 1>(factor).reshape([1, 1, 1]))
    }
}

function_table! {
    MetricTable of FusedMetrics {
        pub class_means: fn(FloatTensor<B>, IntTensor<B>, usize) -> FloatTensor<B>,
        pub scores: fn(Metric, [FloatTensor<B>; 2]) -> FloatTensor<B>,
        pub proto_loss: fn(LossCall, [FloatTensor<B>; 2], IntTensor<B>, bool)
            -> LossOutput<FloatTensor<B>>,
        pub episode_loss: fn(LossCall, FloatTensor<B>, [IntTensor<B>; 2], usize, bool)
            -> EpisodeLoss<FloatTensor<B>>,
        split_at: fn(FloatTensor<B>, usize) -> [FloatTensor<B>; 2],
    }
}

/// [`FusedMetrics::episode_loss`], made of the other operations.
fn composed_episode_loss<B: FusedMetrics>(
    call: LossCall,
    x: FloatTensor<B>,
    [of_support, of_queries]: [IntTensor<B>; 2],
    ways: usize,
    gradient: bool,
) -> EpisodeLoss<FloatTensor<B>> {
    let [_, examples] = of_support.shape().dims();
    let (shape, device, dtype) = (x.shape(), B::float_device(&x), x.dtype());
    let [support, queries] = B::split_at(x, examples);
    let prototypes = B::class_means(support, of_support.clone(), ways);
    let output = B::proto_loss(call, [queries, prototypes], of_queries, gradient);
    let gradient = output.gradients.map(|[by_queries, by_prototypes]| match shape.num_elements() {
        0 => zeros::<B>(shape, &device, dtype),
        _ => B::float_cat(vec![B::class_spread(by_prototypes, of_support), by_queries], 1),
    });
    let accuracy = unwrap(wrap::<B, 2>(output.correct).mean());
    EpisodeLoss { loss: output.loss, accuracy, gradient }
}

/// The rows of `x` before the one with number `at`, and the others.
///
/// Its gradient is written once, where that of two slices is two tensors of zeros, written into and added
/// up.
///
/// # Shapes
/// - `x`: `[t, n, d]`
/// - returns `[t, at, d]` and `[t, n - at, d]`
///
/// # Panics
/// Where one of the two would have no row.
pub fn split_at<B: Backend>(x: Tensor<B, 3>, at: usize) -> [Tensor<B, 3>; 2] {
    let [_, rows, _] = x.dims();
    assert!(0 < at && at < rows, "{rows} rows cannot be split at {at}");
    match registry::table::<MetricTable<B>>() {
        Some(table) => (table.split_at)(unwrap(x), at).map(wrap),
        None => sliced(x, at),
    }
}

fn sliced<B: Backend>(x: Tensor<B, 3>, at: usize) -> [Tensor<B, 3>; 2] {
    let [_, rows, _] = x.dims();
    [x.clone().narrow(1, 0, at), x.narrow(1, at, rows - at)]
}

/// The table of `B`, if these operations are fused and take elements of the type of all of these;
/// `operation` is the name of what asks.
pub(crate) fn table<B: Backend>(
    operation: &'static str,
    of: &[&Tensor<B, 3>],
) -> Option<&'static MetricTable<B>> {
    let (types, first) = (of.iter().map(|x| x.dtype()), of[0].dtype());
    let takes = registry::taken::<B>();
    registry::table()
        .filter(|_| all_taken(operation, types, |dtype| dtype == first && takes(dtype)))
}

/// Panics when prototypes have other tasks or features than the queries, or there are none.
pub(crate) fn check_prototypes(queries: [usize; 3], prototypes: [usize; 3]) {
    let [tasks, _, features] = queries;
    assert!(
        prototypes[0] == tasks && prototypes[1] > 0 && prototypes[2] == features,
        "queries {queries:?} need prototypes [{tasks}, at least one, {features}], found {prototypes:?}"
    );
}

/// Panics unless there is a label for each embedding.
pub(crate) fn check_labels(embeddings: [usize; 3], labels: [usize; 2]) {
    let shape = &embeddings[..2];
    assert!(labels == shape, "embeddings {embeddings:?} need labels {shape:?}, found {labels:?}");
}
