//! Gradients of an encoder whose segments are computed a second time instead of kept.

mod masks;
#[cfg(all(test, feature = "flex"))]
mod tests;

use burn::module::AutodiffModule;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use fewshot_models::nn::draw;
use fewshot_models::{BnStatistics, Encoder};

use self::masks::Masks;

/// A tensor without the level of autodiff that differentiates it.
type Plain<B, const D: usize> = Tensor<<B as AutodiffBackend>::InnerBackend, D>;

/// The backward pass of an encoder, segment by segment from the last to the first, over any number
/// of inputs whose gradients are added up.
///
/// A forward pass keeps what goes into each [segment](Encoder::forward_segment) and no graph. With
/// the gradient of the features, the graph of one segment at a time is made, from what went into it,
/// and gives that of its parameters and of its input. So every segment is computed twice, and memory
/// holds the inputs of all and the graph of one.
///
/// # Conventions
/// Under [`BnStatistics::Track`] running averages move in the backward pass, once, in the order in
/// which inputs come back.
///
/// Of an encoder that [draws](Encoder::DRAWS), the backend is seeded before each segment, to the same
/// in both passes, so that dropout masks are the same. The seeds follow from numbers that are drawn
/// from the backend here, and so does the seed that [`gradients`](Self::gradients) leaves: a seeded
/// program repeats, and its next step has other masks.
///
/// The fused operations of a CPU keep their buffers for the next call, which those of another segment
/// may not fit: what is saved within one input is less than the graphs, and grows with the inputs.
///
/// Parameters that are frozen get no gradient. The input gets none either.
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
/// let mut segments = Segments::new(&encoder, BnStatistics::Track, &device);
/// let passed = segments.forward(Tensor::ones([2, 1, 28, 28], &device));
/// let features = passed.features();
/// let mut found = features.clone().powi_scalar(2).mean().backward();
/// let gradient = features.grad_remove(&mut found).expect("the loss is one of the features");
/// segments.backward(passed, gradient);
/// assert_eq!(segments.gradients().len(), 4 * 4);
/// ```
///
/// # Source
/// Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
pub struct Segments<'a, B: AutodiffBackend, E> {
    encoder: &'a E,
    /// The encoder with nothing to be differentiated: Burn keeps the graph of a forward pass until a
    /// backward pass meets it, even if nobody can ask for one any more.
    still: E,
    statistics: BnStatistics,
    masks: Option<Masks<B>>,
    inputs: u64,
    found: GradientsAccumulator<E>,
}

/// What a forward pass by segments leaves.
#[derive(Debug)]
pub struct Passed<B: AutodiffBackend> {
    /// Which input it was.
    input: u64,
    /// What went into each segment.
    before: Vec<Plain<B, 4>>,
    features: Tensor<B, 2>,
}

impl<B: AutodiffBackend> Passed<B> {
    /// The features, `[n, d]`: a leaf, whose gradient is to be handed to [`Segments::backward`].
    pub fn features(&self) -> Tensor<B, 2> {
        self.features.clone()
    }
}

impl<'a, B, E> Segments<'a, B, E>
where
    B: AutodiffBackend,
    E: Encoder<B> + AutodiffModule<B>,
{
    /// Passes through `encoder`, normalised by `statistics`. The device is the one whose random
    /// numbers the encoder draws, if it does.
    pub fn new(encoder: &'a E, statistics: BnStatistics, device: &B::Device) -> Self {
        // A copy of what was not drawn yet would draw values of its own.
        draw::<B, E>(encoder);
        Self {
            still: encoder.clone().no_grad(),
            encoder,
            statistics,
            masks: E::DRAWS.then(|| Masks::draw(device)),
            inputs: 0,
            found: GradientsAccumulator::new(),
        }
    }

    /// Embeds `images` `[n, c, h, w]`, which are a constant.
    pub fn forward(&mut self, images: Tensor<B, 4>) -> Passed<B> {
        let statistics = match self.statistics {
            BnStatistics::Track => BnStatistics::Batch,
            untracked => untracked,
        };
        let input = self.inputs;
        self.inputs += 1;
        let mut before = Vec::new();
        let mut x = images.inner();
        for index in 0..self.encoder.segments() {
            self.seed(input, index);
            let y = self.still.forward_segment(index, Tensor::from_inner(x.clone()), statistics);
            before.push(std::mem::replace(&mut x, y.inner()));
        }
        let features = Tensor::from_inner(x.flatten(1, 3)).require_grad();
        Passed { input, before, features }
    }

    /// Adds the gradients of the parameters, given that of the features, `[n, d]`.
    pub fn backward(&mut self, passed: Passed<B>, gradient: Plain<B, 2>) {
        let [n, d] = gradient.dims();
        let mut gradient = Some(gradient.reshape([n, d, 1, 1]));
        let Passed { input, before, features } = passed;
        drop(features);
        for (index, x) in before.into_iter().enumerate().rev() {
            let x = Tensor::from_inner(x);
            let x = if index > 0 { x.require_grad() } else { x };
            self.seed(input, index);
            let y = self.encoder.forward_segment(index, x.clone(), self.statistics);
            let mut found = pulled(y, gradient).backward();
            gradient = x.grad_remove(&mut found);
            let parameters = GradientsParams::from_grads(found, self.encoder);
            self.found.accumulate(self.encoder, parameters);
        }
    }

    /// The sum over all inputs, by parameter.
    pub fn gradients(mut self) -> GradientsParams {
        if let Some(masks) = &self.masks {
            masks.leave();
        }
        self.found.grads()
    }

    fn seed(&self, input: u64, segment: usize) {
        if let Some(masks) = &self.masks {
            masks.seed(input, segment);
        }
    }
}

/// A number whose gradient by `y` is `gradient`; `None` for nothing at all.
fn pulled<B: AutodiffBackend>(y: Tensor<B, 4>, gradient: Option<Plain<B, 4>>) -> Tensor<B, 1> {
    // Burn refuses a backward pass without a single leaf, as where all is frozen.
    let leaf = Tensor::zeros([1], (&y.device(), y.dtype())).require_grad();
    match gradient {
        Some(gradient) => (y * Tensor::from_inner(gradient)).sum() + leaf,
        None => leaf,
    }
}
