//! Gradient checkpointing: all segments of an encoder but the last are computed twice instead of kept.

#[cfg(all(test, feature = "flex"))]
mod tests;

use burn::module::AutodiffModule;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use fewshot_models::nn::draw;
use fewshot_models::{BnStatistics, Encoder};

use crate::phase::{Phase, phase_on};
use crate::random::{Purpose, Stream, backend_key};

/// A tensor without the level of autodiff that differentiates it.
type Plain<B, const D: usize> = Tensor<<B as AutodiffBackend>::InnerBackend, D>;

/// The gradients of an encoder by gradient checkpointing, added up over any number of inputs.
///
/// A forward pass keeps the input of each [segment](Encoder::forward_segment) and the graph of the last
/// one. After the backward pass through that, the graphs of those before it are made one at a time, from
/// the last to the first. So every segment but the last is computed twice, and memory holds the inputs of
/// all and the graph of one.
///
/// One input's graphs are gone before the next ones come: of several graphs on the same parameters,
/// Burn 0.21 may drop those that have not had their backward pass when another has it.
///
/// # Conventions
/// Under [`BnStatistics::Track`] running averages move once for each input.
///
/// For an encoder that [draws](Encoder::draws), the backend is seeded before each segment, alike in
/// both passes, so that dropout masks are the same. These seeds, and the one that
/// [`gradients`](Self::gradients) leaves, follow from numbers that the backend draws here: a seeded
/// program repeats, and its next step has other masks.
///
/// The fused operations of a CPU keep their buffers for the next call, and those of one segment may not
/// fit another: more memory is saved over several inputs than over one.
///
/// Frozen parameters get no gradient, and neither does the input.
///
/// # Example
/// ```
/// use burn::backend::{Autodiff, Flex};
/// use burn::tensor::Tensor;
/// use fewshot::adapt::Segments;
/// use fewshot::models::{BnStatistics, Conv4Config};
///
/// type B = Autodiff<Flex>;
///
/// let device = Default::default();
/// let encoder = Conv4Config::omniglot().init::<B>(&device);
/// let mut segments = Segments::new(&encoder, &encoder, BnStatistics::Track, &device);
/// let images = Tensor::ones([2, 1, 28, 28], &device);
/// segments.pass(images, |features| features.powi_scalar(2).mean().backward());
/// assert_eq!(segments.gradients().len(), 4 * 4);
/// ```
///
/// # Source
/// Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
pub struct Segments<'a, B: AutodiffBackend, E, M> {
    module: &'a M,
    encoder: &'a E,
    /// The encoder without gradients: Burn keeps the graph of a forward pass until a backward pass meets
    /// it, even if nobody can ask for one any more.
    still: E,
    statistics: BnStatistics,
    masks: Option<Masks<B>>,
    inputs: u64,
    sums: GradientsAccumulator<M>,
}

impl<'a, B, E, M> Segments<'a, B, E, M>
where
    B: AutodiffBackend,
    E: Encoder<B> + AutodiffModule<B>,
    M: AutodiffModule<B>,
{
    /// Passes through the `encoder` of a `module`, or the same encoder, normalised by `statistics`, for the
    /// gradients of all parameters of `module`; `device` draws the encoder's random numbers, if any.
    pub fn new(
        module: &'a M,
        encoder: &'a E,
        statistics: BnStatistics,
        device: &B::Device,
    ) -> Self {
        // A copy of what was not drawn yet would draw values of its own.
        draw::<B, E>(encoder);
        Self {
            module,
            still: encoder.clone().no_grad(),
            encoder,
            statistics,
            masks: encoder.draws().then(|| Masks::draw(device)),
            inputs: 0,
            sums: GradientsAccumulator::new(),
        }
    }

    /// Embeds `images` `[n, c, h, w]`, which are a constant, and adds the gradients of the parameters.
    /// `judge` is given the features, `[n, d]`, and makes the backward pass of their loss.
    ///
    /// # Panics
    /// When the encoder says that it has no segment.
    pub fn pass(&mut self, images: Tensor<B, 4>, judge: impl FnOnce(Tensor<B, 2>) -> B::Gradients) {
        let input = self.inputs;
        self.inputs += 1;
        let statistics = match self.statistics {
            BnStatistics::Track => BnStatistics::Batch,
            untracked => untracked,
        };
        let segments = self.encoder.segments();
        assert!(segments > 0, "an encoder has at least one segment");
        let last = segments - 1;
        let mut before = Vec::new();
        let mut x = images.inner();
        for index in 0..last {
            self.seed(input, index);
            let y = self.still.forward_segment(index, Tensor::from_inner(x.clone()), statistics);
            before.push(std::mem::replace(&mut x, y.inner()));
        }
        let (x, y) = self.graph(input, last, x);
        let grads = judge(y.flatten(1, 3));
        let device = x.device();
        phase_on::<B, _>(Phase::Backward, &device, || {
            let mut gradient = self.add(x, grads);
            for (index, x) in before.into_iter().enumerate().rev() {
                let (x, y) = self.graph(input, index, x);
                gradient = self.add(x, pulled(y, gradient).backward());
            }
        });
    }

    /// Input of a segment, and its output on the segment's graph.
    fn graph(&self, input: u64, index: usize, x: Plain<B, 4>) -> (Tensor<B, 4>, Tensor<B, 4>) {
        let x = Tensor::from_inner(x);
        let x = if index > 0 { x.require_grad() } else { x };
        self.seed(input, index);
        let y = self.encoder.forward_segment(index, x.clone(), self.statistics);
        (x, y)
    }

    /// Adds the gradients of a segment's parameters, and gives that of `x`, which went into it.
    fn add(&mut self, x: Tensor<B, 4>, mut grads: B::Gradients) -> Option<Plain<B, 4>> {
        let gradient = x.grad_remove(&mut grads);
        let parameters = GradientsParams::from_grads(grads, self.module);
        self.sums.accumulate(self.module, parameters);
        gradient
    }

    /// The sum over all inputs, by parameter.
    pub fn gradients(mut self) -> GradientsParams {
        // For what comes after.
        self.seed(u64::MAX, usize::MAX);
        self.sums.grads()
    }

    /// Seeds the backend for a segment of an input, where the encoder draws.
    fn seed(&self, input: u64, segment: usize) {
        if let Some(masks) = &self.masks {
            masks.seed(input, segment);
        }
    }
}

/// The number `sum(y * gradient)`, whose backward pass is the vjp of `y`; zero without a gradient.
fn pulled<B: AutodiffBackend>(y: Tensor<B, 4>, gradient: Option<Plain<B, 4>>) -> Tensor<B, 1> {
    // Burn refuses a backward pass without a single leaf, as where all is frozen.
    let leaf = Tensor::zeros([1], (&y.device(), y.dtype())).require_grad();
    match gradient {
        Some(gradient) => (y * Tensor::from_inner(gradient)).sum() + leaf,
        None => leaf,
    }
}

/// Seeds for what the segments of an encoder draw.
struct Masks<B: AutodiffBackend> {
    key: u64,
    device: B::Device,
}

impl<B: AutodiffBackend> Masks<B> {
    /// From a key that the backend draws.
    fn draw(device: &B::Device) -> Self {
        Self { key: backend_key::<B::InnerBackend>(device), device: device.clone() }
    }

    fn seed(&self, input: u64, segment: usize) {
        let mut stream = Stream::new(self.key, Purpose::Segment, [input, segment as u64]);
        B::seed(&self.device, stream.seed());
    }
}
