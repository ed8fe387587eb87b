use std::marker::PhantomData;

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::{BnStatistics, Encoder};

use super::embed::{embed_jointly, embed_support, embed_tasks};
use super::heads::{EmbeddedSupport, TransductiveHead};
use super::{Learner, OnEmbeddings};
use crate::episode::{EpisodeBatch, Support};
use crate::precision::Precision;

/// An encoder with a [`TransductiveHead`]: a learner that judges all queries of a task together.
///
/// The encoder is one that was trained before, classically or on episodes.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use fewshot::learners::heads::BdCspn;
/// use fewshot::learners::Transductive;
/// use fewshot::prelude::*;
///
/// let glyphs = Glyphs::generate(&GlyphsConfig::default());
/// let encoder = Conv4Config::omniglot().init::<Flex>(&Default::default());
/// let learner = Transductive::new(encoder, BdCspn::new());
/// let sampler = glyphs.test.sampler(Protocol::new(5, 1), 7)?;
/// let episode = sampler.batch::<Flex>(0..1, &Default::default());
/// let logits = learner.adapt(&episode.support).predict_all(episode.queries.clone());
/// assert_eq!(logits.dims(), [1, 75, 5]);
/// # Ok::<(), fewshot::episode::EpisodeError>(())
/// ```
#[derive(Module, Debug)]
pub struct Transductive<B: Backend, E, H> {
    encoder: E,
    head: H,
    _backend: PhantomData<B>,
}

impl<B: Backend, E: Encoder<B>, H: TransductiveHead<B>> Transductive<B, E, H> {
    /// `head` on `encoder`.
    pub fn new(encoder: E, head: H) -> Self {
        Self { encoder, head, _backend: PhantomData }
    }

    /// The network that embeds images.
    pub fn encoder(&self) -> &E {
        &self.encoder
    }

    /// The classifier over embeddings.
    pub fn head(&self) -> &H {
        &self.head
    }
}

impl<B: Backend, E: Encoder<B>, H: TransductiveHead<B>> Learner<B> for Transductive<B, E, H> {
    type Adapted = AdaptedTransductive<B, E, H>;

    fn adapt(&self, support: &Support<B>) -> AdaptedTransductive<B, E, H> {
        let support = embed_support(&self.encoder, support);
        AdaptedTransductive { learner: self.clone(), support }
    }

    /// Support and queries of an episode are normalised together.
    fn outputs(&self, batch: &EpisodeBatch<B>, statistics: BnStatistics) -> Tensor<B, 3> {
        if statistics == BnStatistics::Running {
            return self.adapt(&batch.support).predict_all(batch.queries.clone());
        }
        let (support, queries) = embed_jointly(&self.encoder, batch, statistics);
        self.head.logits(support, queries)
    }

    fn on_embeddings(&self) -> Option<&dyn OnEmbeddings<B>> {
        Some(self)
    }

    fn transductive(&self) -> bool {
        true
    }

    fn precision(&self) -> Precision {
        self.encoder.precision()
    }

    fn architecture(&self) -> String {
        let (head, encoder) = (self.head.name(), self.encoder.architecture());
        format!("{head} {} on {encoder}", self.head.settings())
    }
}

impl<B: Backend, E: Encoder<B>, H: TransductiveHead<B>> OnEmbeddings<B> for Transductive<B, E, H> {
    fn embed(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        self.encoder.encode(images, BnStatistics::Running)
    }

    fn of_embeddings(&self, support: EmbeddedSupport<B>, queries: Tensor<B, 3>) -> Tensor<B, 3> {
        self.head.logits(support, queries)
    }
}

/// A [`Transductive`] learner with the support of its tasks, which still needs all of their queries.
pub struct AdaptedTransductive<B: Backend, E, H> {
    learner: Transductive<B, E, H>,
    support: EmbeddedSupport<B>,
}

impl<B: Backend, E: Encoder<B>, H: TransductiveHead<B>> AdaptedTransductive<B, E, H> {
    /// Logits `[t, q, ways]` of all queries of every task, `[t, q, c, h, w]`. It is used up by this: asked
    /// for some of the queries, it would say something else.
    pub fn predict_all(self, queries: Tensor<B, 5>) -> Tensor<B, 3> {
        let Self { learner, support } = self;
        let queries = embed_tasks(&learner.encoder, queries, BnStatistics::Running);
        learner.head.logits(support, queries)
    }
}
