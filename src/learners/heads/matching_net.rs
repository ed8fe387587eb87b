use burn::config::Config;
use burn::module::Module;
use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::checked::positive;
use super::formula::{LEAST_SHARE, single_task};
use super::full_context::FullContext;
use super::unit_length::unit_length;
use super::{EmbeddedSupport, FittedHead, Head, LengthNormalisation, LogitFormula, NoFormula};

/// The score of a query and a support embedding in a [`MatchingNet`]; its softmax over the support
/// is how much the query attends to each embedding.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MatchingAttention {
    /// The cosine of the two times a scale, which is 1 in the paper and 100 in the code of Chen et
    /// al., "A Closer Look at Few-shot Classification", ICLR 2019.
    Cosine {
        /// Factor of the cosine.
        scale: f64,
    },
    /// The cosine times the length of the query, as in easyfsl: sharper where embeddings are long.
    UnscaledQuery,
}

/// Context of an embedding of a [`MatchingNet`]: the other embeddings, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MatchingContext {
    /// Embeddings are taken as they are.
    #[default]
    Absent,
    /// The paper's full context embeddings, with an LSTM over the support in both directions and
    /// one that lets queries attend to the support.
    Full,
}

/// Configuration of a [`MatchingNet`].
#[derive(Config, Debug)]
pub struct MatchingNetConfig {
    /// Features of an embedding.
    pub features: usize,
    /// Attention of a query to an embedding of the support.
    #[config(default = "MatchingAttention::Cosine { scale: 100.0 }")]
    pub attention: MatchingAttention,
    /// Context of an embedding.
    #[config(default = "MatchingContext::Absent")]
    pub context: MatchingContext,
    /// Steps in which a query attends to the support in a full context: by default as many as there
    /// are support images, as in easyfsl.
    pub context_steps: Option<usize>,
}

impl MatchingNetConfig {
    /// The head, with weights drawn as PyTorch draws those of an LSTM if there is a full context.
    ///
    /// # Panics
    /// When there are no features, no steps in a full context, or the scale of cosines is not a
    /// positive number.
    pub fn init<B: Backend>(&self, device: &B::Device) -> MatchingNet<B> {
        let Self { features, attention, context, context_steps } = *self;
        assert!(features > 0, "a matching network needs embeddings with features");
        if let MatchingAttention::Cosine { scale } = attention {
            positive("the scale of a matching network's cosines", scale);
        }
        assert!(context_steps != Some(0), "a full context needs a step at least");
        let full = (context == MatchingContext::Full)
            .then(|| FullContext::new(features, context_steps, device));
        MatchingNet { full_context: full, config: self.clone() }
    }
}

/// Matching networks: a query belongs to the classes of the support examples that it attends to.
///
/// `p(y = k | q) = sum_{i of class k} a_i` with `a = softmax_i(scale * cos(q, x_i))`; logits are
/// `log(p + 1e-6)`.
///
/// # Conventions
/// The paper has no scale. Embeddings after a ReLU have cosines between 0 and 1, whose softmax over
/// `n` embeddings is at most `e / (e + n - 1)`: with 20 classes of one example the loss is at least
/// 2.08 however well classes are told apart, and training is slow. The default is 100.
///
/// Embeddings are taken as they are, as in most of the paper's results. With a
/// [full context](MatchingContext::Full), the order of the support matters, and a query's first
/// hidden state is its embedding, as in easyfsl, which has the
/// [attention](MatchingAttention::UnscaledQuery) besides.
///
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::{Tensor, activation::softmax}};
/// # use fewshot::learners::heads::{EmbeddedSupport, Head, MatchingNetConfig};
/// # let device = Default::default();
/// let embeddings = Tensor::<Flex, 3>::from_data([[[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]]], &device);
/// let support = EmbeddedSupport::new(embeddings, Tensor::from_data([[0, 1, 1]], &device), 2);
/// let head = MatchingNetConfig::new(2).init(&device);
/// let logits = head.fit(support).logits(Tensor::from_data([[[5.0, 5.0]]], &device));
/// let wanted = [[[1.0 / 3.0, 2.0 / 3.0]]].into(); // equally near to all three
/// softmax(logits, 2).into_data().assert_approx_eq::<f32>(&wanted, Default::default());
/// ```
///
/// # Source
/// Vinyals, Blundell, Lillicrap, Kavukcuoglu and Wierstra, "Matching Networks for One Shot
/// Learning", NeurIPS 2016.
#[derive(Module, Debug)]
pub struct MatchingNet<B: Backend> {
    /// Lets embeddings know of each other.
    pub full_context: Option<FullContext<B>>,
    #[module(skip)]
    config: MatchingNetConfig,
}

impl<B: Backend> Head<B> for MatchingNet<B> {
    const NAME: &'static str = "matching";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let ways = support.ways;
        let (attention, context, classes) =
            (self.config.attention, self.full_context.clone(), support.one_hot());
        let embeddings = match &context {
            Some(context) => {
                let (wanted, found) = (self.config.features, support.embeddings.dims());
                assert_eq!(wanted, found[2], "a context of {wanted} features, support {found:?}");
                context.read_support(support.embeddings)
            }
            None => support.embeddings,
        };
        let directions = unit_length(embeddings.clone(), 2).swap_dims(1, 2);
        FittedHead::new(ways, move |queries| {
            let queries = match &context {
                Some(context) => context.attend(queries, embeddings.clone()),
                None => queries,
            };
            let queries = match attention {
                MatchingAttention::Cosine { scale } => unit_length(queries, 2) * scale,
                MatchingAttention::UnscaledQuery => queries,
            };
            let attention = softmax(product(queries, directions.clone()), 2);
            (product(attention, classes.clone()) + LEAST_SHARE).log()
        })
    }

    fn formula(&self, support: EmbeddedSupport<B>) -> Result<LogitFormula<B>, NoFormula> {
        if self.full_context.is_some() {
            return Err(NoFormula("its embeddings know of each other"));
        }
        let directions = unit_length(support.embeddings.clone(), 2).swap_dims(1, 2);
        let (lengths, directions) = match self.config.attention {
            MatchingAttention::Cosine { scale } => (LengthNormalisation::Unit, directions * scale),
            MatchingAttention::UnscaledQuery => (LengthNormalisation::Given, directions),
        };
        let (directions, classes) = (single_task(directions), single_task(support.one_hot()));
        Ok(LogitFormula::Attention { lengths, directions, classes })
    }

    fn settings(&self) -> Value {
        json!(self.config)
    }
}
