use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use serde_json::{Value, json};

use super::checked::positive;
use super::unit_length::unit_length;
use super::{
    EmbeddedSupport, FittedHead, Head, LengthNormalisation, LogitFormula, NoFormula, PrototypeScore,
};

/// The cosine with the mean of each class, times a learned scale.
///
/// `p(y = k | q) = softmax_k(scale * cos(q, c_k))`, with `c_k` the mean of the embeddings of class
/// `k`.
///
/// # Conventions
/// Class means are of embeddings as they are, not of embeddings of length one, as in the authors'
/// code. The encoder is first trained to tell all base classes apart, and then with this head on
/// episodes.
///
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::Tensor};
/// # use fewshot::learners::heads::{EmbeddedSupport, Head, MetaBaseline};
/// # let device = Default::default();
/// let embeddings = Tensor::<Flex, 3>::from_data([[[2.0, 0.0], [0.0, 5.0]]], &device);
/// let support = EmbeddedSupport::new(embeddings, Tensor::from_data([[0, 1]], &device), 2);
/// let head = MetaBaseline::new(10.0, &device);
/// let logits = head.fit(support).logits(Tensor::from_data([[[3.0, 4.0]]], &device));
/// logits.into_data().assert_approx_eq::<f32>(&[[[6.0, 8.0]]].into(), Default::default());
/// ```
///
/// # Source
/// Chen, Liu, Xu, Darrell and Wang, "Meta-Baseline: Exploring Simple Meta-Learning for Few-Shot
/// Learning", ICCV 2021.
#[derive(Module, Debug)]
pub struct MetaBaseline<B: Backend> {
    /// Factor of the cosines, `[1]`.
    pub scale: Param<Tensor<B, 1>>,
    initial: f64,
}

impl<B: Backend> MetaBaseline<B> {
    /// With a scale to start from, 10 in the paper.
    ///
    /// # Panics
    /// When the scale is not a positive number.
    pub fn new(scale: f64, device: &B::Device) -> Self {
        positive("the scale of Meta-Baseline", scale);
        Self { scale: Param::from_tensor(Tensor::full([1], scale, device)), initial: scale }
    }
}

impl<B: Backend> Head<B> for MetaBaseline<B> {
    const NAME: &'static str = "meta-baseline";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let ways = support.ways;
        let (scale, prototypes) = (self.scale.val().unsqueeze::<3>(), support.prototypes());
        FittedHead::new(ways, move |queries| {
            PrototypeScore::Cosine.of(queries, prototypes.clone()) * scale.clone()
        })
    }

    fn formula(&self, support: EmbeddedSupport<B>) -> Result<LogitFormula<B>, NoFormula> {
        let scale = self.scale.val().unsqueeze::<3>();
        let weights = unit_length(support.prototypes(), 2).swap_dims(1, 2) * scale;
        Ok(LogitFormula::products(LengthNormalisation::Unit, weights))
    }

    fn settings(&self) -> Value {
        json!({ "initial_scale": self.initial })
    }
}
