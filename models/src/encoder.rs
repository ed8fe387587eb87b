use burn::module::{Module, ModuleDisplay};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::Precision;

use crate::nn::BnStatistics;

/// Number of times that a network can be differentiated exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Differentiable {
    /// Gradients, but none of a gradient: training, and meta-learning of first order.
    Once,
    /// Gradients of gradients too, under two levels of autodiff: meta-learning of second order.
    Twice,
}

/// A network that turns images into feature vectors.
///
/// Any module becomes one with this `impl`; the learners ask for nothing more.
pub trait Encoder<B: Backend>: Module<B> + ModuleDisplay {
    /// Feature vectors of `images`, normalised by `statistics` where the network has batch-norm.
    ///
    /// # Shapes
    /// - `images`: `[n, c, h, w]`; plain vectors of `d` values are `[n, d, 1, 1]`
    /// - returns `[n, d]`
    fn encode(&self, images: Tensor<B, 4>, statistics: BnStatistics) -> Tensor<B, 2>;

    /// `true` if [`encode_lanes`](Self::encode_lanes) is implemented.
    fn has_lanes(&self) -> bool {
        false
    }

    /// Feature vectors for several tasks, each with parameters of its own: every parameter and
    /// running average has those of task after task along dimension 0.
    ///
    /// # Shapes
    /// - `images`: `[t, n, c, h, w]`
    /// - returns `[t, n, d]`
    ///
    /// # Panics
    /// If the encoder [has no lanes](Self::has_lanes).
    fn encode_lanes(&self, images: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        let _ = (images, statistics);
        panic!("{} has no lanes", self.architecture())
    }

    /// Feature vectors for several tasks with the same parameters, of which each is normalised by its own
    /// images where `statistics` are those of the batch. By default, task after task.
    ///
    /// # Shapes
    /// - `images`: `[t, n, c, h, w]`
    /// - returns `[t, n, d]`
    fn encode_tasks(&self, images: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        task_by_task(self, images, statistics)
    }

    /// Precision of the encoder's products and of those of a layer on top. Not part of the
    /// [`architecture`](Self::architecture): parameters are the same in every precision.
    fn precision(&self) -> Precision {
        Precision::F32
    }

    /// `true` if a forward pass draws random numbers of the backend, like dropout.
    ///
    /// If so, the same numbers are drawn again when a [segment](Self::forward_segment) is recomputed. `true` is always
    /// right; `false` leaves the backend's random state alone.
    fn draws(&self) -> bool {
        true
    }

    /// Number of consecutive parts, at least one, of which all but the last can be recomputed one at a time.
    fn segments(&self) -> usize {
        1
    }

    /// The part of this index. All of them, each on the output of the one before, are
    /// [`encode`](Self::encode) but for the shape of the features.
    ///
    /// To be computed a second time, a part may depend on nothing but its parameters, `x`,
    /// `statistics` and the backend's random numbers, and may change nothing but the running averages
    /// that [`BnStatistics::Track`] updates. Burn's own batch-norm updates its averages each time.
    ///
    /// # Shapes
    /// - `x`: the images `[n, c, h, w]`, or maps of any shape that the part before returned
    /// - returns maps `[n, c', h', w']`, the last part features `[n, d, 1, 1]`
    ///
    /// # Panics
    /// If there are not so many.
    fn forward_segment(
        &self,
        index: usize,
        x: Tensor<B, 4>,
        statistics: BnStatistics,
    ) -> Tensor<B, 4> {
        assert_eq!(index, 0, "{} has one segment", self.architecture());
        self.encode(x, statistics).unsqueeze_dims(&[-1, -1])
    }

    /// Number of times that features can be differentiated by parameters and images: twice where second-order
    /// meta-learning can go through the network, as it can through each one of this crate.
    ///
    /// Once is always right. A second derivative through Burn's own linear, embedding, pooling or interpolating layers is
    /// a panic, and of its `max_pool1d` and exact GELU a wrong value.
    fn differentiable(&self) -> Differentiable {
        Differentiable::Once
    }

    /// Description of the network, for reports and to tell whether a checkpoint fits: two encoders with the
    /// same text have parameters of the same names and shapes.
    fn architecture(&self) -> String;
}

/// [`Encoder::encode_tasks`] by as many passes as there are tasks.
pub(crate) fn task_by_task<B: Backend>(
    encoder: &impl Encoder<B>,
    images: Tensor<B, 5>,
    statistics: BnStatistics,
) -> Tensor<B, 3> {
    let encode = |task: Tensor<B, 5>| encoder.encode(task.flatten(0, 1), statistics).unsqueeze();
    if images.dims()[0] == 1 {
        return encode(images);
    }
    Tensor::cat(images.split(1, 0).into_iter().map(encode).collect(), 0)
}
