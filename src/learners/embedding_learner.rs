use burn::module::{AutodiffModule, Module};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_models::{BnStatistics, Encoder};
use serde_json::{Value, json};

use super::embed::{embed_jointly, embed_support, embed_tasks};
use super::heads::{EmbeddedEpisode, EmbeddedSupport, FittedHead, Head, Prototypes};
use super::{
    Adapted, BaseClassifier, Learner, MetaGradients, MetaLearner, OnEmbeddings, accuracies,
    scaled_gradients,
};
use crate::adapt::{AdaptError, Segments};
use crate::episode::{EpisodeBatch, MixedImages, Support};
use crate::hardware::Checkpointing;
use crate::phase::{Phase, phase_on};
use crate::precision::{LossScale, Precision, ScaledGrads};

/// An encoder with a [`Head`] on its embeddings.
///
/// It is trained on episodes by the [loss](Head::loss) of the head, encoder and head together; or, with
/// a [`BaseClassifier`], classically: an episode is then a mini-batch of images of its classes, and the
/// head only serves in tests.
///
/// With a [transductive](Head::transductive) head, [`predict`](Adapted::predict) gets all queries of a
/// task in one call, and the encoder was trained beforehand.
///
/// # Conventions
/// In training, support and query images of an episode go through the encoder in one batch.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use fewshot::learners::heads::SimpleShot;
/// use fewshot::learners::EmbeddingLearner;
/// use fewshot::prelude::*;
///
/// let glyphs = Glyphs::generate(&GlyphsConfig::default());
/// let encoder = Conv4Config::omniglot().init::<Flex>(&Default::default());
/// let learner = EmbeddingLearner::with_head(encoder, SimpleShot::new());
/// let sampler = glyphs.test.sampler(Protocol::new(5, 1), 7)?;
/// let episode = sampler.batch::<Flex>(0..1, &Default::default());
/// let logits = learner.adapt(&episode.support).predict(episode.queries.clone());
/// assert_eq!(logits.dims(), [1, 75, 5]);
/// # Ok::<(), fewshot::episode::EpisodeError>(())
/// ```
#[derive(Module, Debug)]
pub struct EmbeddingLearner<B: Backend, E, H> {
    encoder: E,
    head: H,
    classes: Option<BaseClassifier<B>>,
    #[module(skip)]
    checkpointing: Checkpointing,
}

/// Prototypical networks: a query belongs to the class whose mean embedding is nearest.
///
/// [`Prototypes`] says more, and has other scores.
pub type ProtoNet<B, E> = EmbeddingLearner<B, E, Prototypes>;

impl<B: Backend, E: Encoder<B>> ProtoNet<B, E> {
    /// The paper's learner on top of `encoder`.
    pub fn new(encoder: E) -> Self {
        Self::with_head(encoder, Prototypes::new())
    }
}

impl<B: Backend, E: Encoder<B>, H: Head<B>> EmbeddingLearner<B, E, H> {
    /// `head` on `encoder`, trained on episodes.
    pub fn with_head(encoder: E, head: H) -> Self {
        Self { encoder, head, classes: None, checkpointing: Checkpointing::Nothing }
    }

    /// Trained as a classifier of all base classes.
    pub fn with_base_classifier(self, classes: BaseClassifier<B>) -> Self {
        Self { classes: Some(classes), ..self }
    }

    /// Under [`Checkpointing::Segments`], training on episodes goes task by task and [segment by
    /// segment](Segments) through the encoder. It takes memory for one segment and one task instead
    /// of the whole network and batch, in exchange for a second forward pass of all but the last
    /// segment. The gradient is the same up to rounding; running averages of a head move once for
    /// each task. Any other choice of what is recomputed is the backend's, and changes nothing here.
    pub fn with_checkpointing(self, checkpointing: Checkpointing) -> Self {
        Self { checkpointing, ..self }
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

impl<B: Backend, E: Encoder<B>, H: Head<B>> Learner<B> for EmbeddingLearner<B, E, H> {
    type Adapted = AdaptedHead<B, E>;

    fn adapt(&self, support: &Support<B>) -> AdaptedHead<B, E> {
        let fitted = self.head.fit(embed_support(&self.encoder, support));
        AdaptedHead { encoder: self.encoder.clone(), fitted }
    }

    /// Support and queries of an episode are normalised together.
    fn outputs(&self, batch: &EpisodeBatch<B>, statistics: BnStatistics) -> Tensor<B, 3> {
        if statistics == BnStatistics::Running {
            return self.adapt(&batch.support).predict(batch.queries.clone());
        }
        let (support, queries, _) = embed_jointly(&self.encoder, batch, statistics).parts();
        match statistics {
            BnStatistics::Track => self.head.train_logits(support, queries),
            _ => self.head.logits(support, queries),
        }
    }

    fn on_embeddings(&self) -> Option<&dyn OnEmbeddings<B>> {
        Some(self)
    }

    fn transductive(&self) -> bool {
        self.head.transductive()
    }

    fn precision(&self) -> Precision {
        self.encoder.precision()
    }

    /// Settings of the gradient that change its last digits or the dropout masks.
    fn settings(&self) -> Value {
        match self.checkpointing {
            Checkpointing::Segments => json!({ "checkpointing": self.checkpointing }),
            Checkpointing::Nothing | Checkpointing::Balanced => Value::Null,
        }
    }

    fn architecture(&self) -> String {
        let learner = self.head.architecture(&self.encoder.architecture());
        match &self.classes {
            Some(classes) => format!("{learner}, trained as {}", classes.architecture()),
            None => learner,
        }
    }
}

impl<B: Backend, E: Encoder<B>, H: Head<B>> OnEmbeddings<B> for EmbeddingLearner<B, E, H> {
    fn embed(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        self.encoder.encode(images, BnStatistics::Running)
    }

    fn of_embeddings(&self, support: EmbeddedSupport<B>, queries: Tensor<B, 3>) -> Tensor<B, 3> {
        self.head.logits(support, queries)
    }
}

impl<B, E, H> MetaLearner<B> for EmbeddingLearner<B, E, H>
where
    B: AutodiffBackend,
    E: Encoder<B> + AutodiffModule<B, InnerModule: Encoder<B::InnerBackend>>,
    H: Head<B> + AutodiffModule<B, InnerModule: Head<B::InnerBackend>>,
{
    fn draws(&self) -> bool {
        self.encoder.draws() || H::DRAWS
    }

    fn meta_gradients(&self, batch: &EpisodeBatch<B>, scale: LossScale) -> MetaGradients<B> {
        if let Some(classes) = &self.classes {
            return self.classical_gradients(classes, batch, scale);
        }
        if self.checkpointing == Checkpointing::Segments {
            return self.by_segments(batch, scale);
        }
        let episode = embed_jointly(&self.encoder, batch, BnStatistics::Track);
        let (score, loss) = self.head.train_loss(episode);
        let gradients = scaled_gradients(loss.clone(), self, scale);
        MetaGradients { loss: loss.inner(), score: score.inner(), gradients }
    }

    /// Checks that there are segments, if they are asked for, and that the classes of episodes are
    /// known, where the learner is trained as their classifier.
    fn check(&self, batch: &EpisodeBatch<B>) -> Result<(), AdaptError> {
        if self.checkpointing == Checkpointing::Segments && self.encoder.segments() < 2 {
            return Err(AdaptError::OneSegment { architecture: self.encoder.architecture() });
        }
        let Some(classes) = &self.classes else {
            return if batch.has_queries() { Ok(()) } else { Err(AdaptError::NoQueries) };
        };
        let count = classes.config().classes;
        match batch.classes() {
            Some(labels) if labels.iter().all(|class| *class < count) => Ok(()),
            labels => {
                let class = labels.and_then(|labels| labels.iter().max().copied());
                Err(AdaptError::BaseClasses { classes: count, class })
            }
        }
    }
}

impl<B, E, H> EmbeddingLearner<B, E, H>
where
    B: AutodiffBackend,
    E: Encoder<B> + AutodiffModule<B, InnerModule: Encoder<B::InnerBackend>>,
    H: Head<B> + AutodiffModule<B, InnerModule: Head<B::InnerBackend>>,
{
    /// Task after task, of which nothing stays but gradients.
    fn by_segments(&self, batch: &EpisodeBatch<B>, scale: LossScale) -> MetaGradients<B> {
        let [labels, _] = batch.labels();
        let (device, share) = (labels.device(), 1.0 / batch.tasks() as f64);
        let mut segments = Segments::new(self, &self.encoder, BnStatistics::Track, &device);
        let (mut losses, mut scores) = (Vec::new(), Vec::new());
        for task in 0..batch.tasks() {
            let task = batch.part(task..task + 1);
            segments.pass(task.joined().flatten(0, 1), |features| {
                let episode =
                    EmbeddedEpisode::new(features.unsqueeze(), task.labels(), task.ways());
                let (score, loss) = self.head.train_loss(episode);
                losses.push(loss.clone().inner());
                scores.push(score.inner());
                phase_on::<B, _>(Phase::Backward, &device, || {
                    scale.scale(loss * share).into_inner().backward()
                })
            });
        }
        let mean = |tasks| Tensor::cat(tasks, 0).mean();
        let gradients = ScaledGrads::new(segments.gradients(), scale);
        MetaGradients { loss: mean(losses), score: mean(scores), gradients }
    }

    /// Loss of all images of the episodes as one mini-batch of base classes. The score of mixed images is for their own
    /// classes, whatever share of an image is its own.
    ///
    /// # Panics
    /// When there is a class that the classifier does not have.
    fn classical_gradients(
        &self,
        classes: &BaseClassifier<B>,
        batch: &EpisodeBatch<B>,
        scale: LossScale,
    ) -> MetaGradients<B> {
        self.check(batch).unwrap_or_else(|error| panic!("{error}"));
        let labels = batch.base_labels().expect("checked before the first step");
        let labels = labels.flatten::<1>(0, 1);
        let embed = |images: Tensor<B, 5>| {
            let images = classes.training_images(images.flatten(0, 1));
            self.encoder.encode(images, BnStatistics::Track)
        };
        let (loss, logits) = match batch.mixed() {
            None => classes.loss(embed(batch.joined()), labels.clone()),
            Some(MixedImages { images, partners, shares }) => {
                classes.mixed_loss(embed(images), labels.clone(), partners, shares)
            }
        };
        let gradients = scaled_gradients(loss.clone(), self, scale);
        let score = accuracies(logits.inner().unsqueeze(), labels.inner().unsqueeze()).mean();
        MetaGradients { loss: loss.inner(), score, gradients }
    }
}

/// An encoder with a head that has learned its tasks.
pub struct AdaptedHead<B: Backend, E> {
    encoder: E,
    fitted: FittedHead<B>,
}

impl<B: Backend, E: Encoder<B>> Adapted<B> for AdaptedHead<B, E> {
    fn predict(&self, queries: Tensor<B, 5>) -> Tensor<B, 3> {
        self.fitted.logits(embed_tasks(&self.encoder, queries, BnStatistics::Running))
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests;
