use std::marker::PhantomData;

use burn::module::{AutodiffModule, Module};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_models::{BnStatistics, Encoder};
use serde_json::{Value, json};

use super::embed::{embed_jointly, embed_support, embed_tasks, parted};
use super::heads::EmbeddedSupport;
use super::{Adapted, Learner, MetaGradients, MetaLearner, OnEmbeddings};
use crate::adapt::{AdaptError, Segments};
use crate::episode::{EpisodeBatch, Support};
use crate::hardware::Checkpointing;
use crate::metric::{Metric, ProtoLoss, proto_loss, scores};
use crate::phase::{Phase, phase_on};
use crate::precision::{LossScale, Precision, ScaledGrads};

/// Prototypical networks: a query belongs to the class whose mean embedding is nearest.
///
/// `p(y = k | x) = softmax_k(scale * score(f(x), c_k))`, with `c_k` the mean of the embeddings of
/// the support of class `k` and the [`Metric`] as score.
///
/// # Conventions
/// Squared Euclidean distance and a scale of 1, as in the paper; some libraries take the distance's
/// root. In training, support and query images of an episode go through the encoder in one batch,
/// as in the authors' code, whose test uses running statistics.
///
/// # Source
/// Snell, Swersky and Zemel, "Prototypical Networks for Few-shot Learning", NeurIPS 2017.
#[derive(Module, Debug)]
pub struct ProtoNet<B: Backend, E> {
    encoder: E,
    #[module(skip)]
    metric: Metric,
    scale: f64,
    #[module(skip)]
    checkpointing: Checkpointing,
    _backend: PhantomData<B>,
}

impl<B: Backend, E: Encoder<B>> ProtoNet<B, E> {
    /// The paper's learner on top of `encoder`.
    pub fn new(encoder: E) -> Self {
        Self {
            encoder,
            metric: Metric::SquaredEuclidean,
            scale: 1.0,
            checkpointing: Checkpointing::Nothing,
            _backend: PhantomData,
        }
    }

    /// With another score.
    ///
    /// Cosines span only -1 to 1, so a softmax over them wants a scale of about 10.
    pub fn with_metric(self, metric: Metric, scale: f64) -> Self {
        Self { metric, scale, ..self }
    }

    /// Under [`Checkpointing::Segments`], [`meta_gradients`](MetaLearner::meta_gradients) takes one
    /// task after the other and [one segment](Segments) of the encoder after the other: memory for a
    /// task's segment instead of a batch's network, in exchange for a second forward pass of all but
    /// the last segment. The gradient is the same up to rounding. What else there is to recompute is
    /// the backend's choice, and changes nothing here.
    pub fn with_checkpointing(self, checkpointing: Checkpointing) -> Self {
        Self { checkpointing, ..self }
    }

    /// The network that embeds images.
    pub fn encoder(&self) -> &E {
        &self.encoder
    }

    fn score(&self, queries: Tensor<B, 3>, prototypes: Tensor<B, 3>) -> Tensor<B, 3> {
        let scores = scores(queries, prototypes, self.metric);
        if self.scale == 1.0 { scores } else { scores * self.scale }
    }
}

impl<B: Backend, E: Encoder<B>> Learner<B> for ProtoNet<B, E> {
    type Adapted = AdaptedProtoNet<B, E>;

    fn adapt(&self, support: &Support<B>) -> AdaptedProtoNet<B, E> {
        let prototypes = embed_support(&self.encoder, support).prototypes();
        AdaptedProtoNet { learner: self.clone(), prototypes }
    }

    /// Support and queries of an episode are normalised together.
    fn outputs(&self, batch: &EpisodeBatch<B>, statistics: BnStatistics) -> Tensor<B, 3> {
        if statistics == BnStatistics::Running {
            return self.adapt(&batch.support).predict(batch.queries.clone());
        }
        let (support, queries) = embed_jointly(&self.encoder, batch, statistics);
        self.score(queries, support.prototypes())
    }

    fn on_embeddings(&self) -> Option<&dyn OnEmbeddings<B>> {
        Some(self)
    }

    fn precision(&self) -> Precision {
        self.encoder.precision()
    }

    /// How the gradient is computed, where that changes its last digits or the dropout masks.
    fn settings(&self) -> Value {
        match self.checkpointing {
            Checkpointing::Segments => json!({ "checkpointing": self.checkpointing }),
            Checkpointing::Nothing | Checkpointing::Balanced => Value::Null,
        }
    }

    fn architecture(&self) -> String {
        let (metric, scale) = (self.metric, self.scale);
        format!("protonet({metric}, scale {scale}, {})", self.encoder.architecture())
    }
}

impl<B: Backend, E: Encoder<B>> OnEmbeddings<B> for ProtoNet<B, E> {
    fn embed(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        self.encoder.encode(images, BnStatistics::Running)
    }

    fn of_embeddings(&self, support: EmbeddedSupport<B>, queries: Tensor<B, 3>) -> Tensor<B, 3> {
        self.score(queries, support.prototypes())
    }
}

impl<B, E> MetaLearner<B> for ProtoNet<B, E>
where
    B: AutodiffBackend,
    E: Encoder<B> + AutodiffModule<B, InnerModule: Encoder<B::InnerBackend>>,
{
    const DRAWS: bool = E::DRAWS;

    fn meta_gradients(&self, batch: &EpisodeBatch<B>, scale: LossScale) -> MetaGradients<B> {
        if self.checkpointing == Checkpointing::Segments {
            return self.by_segments(batch, scale);
        }
        let embedded = embed_jointly(&self.encoder, batch, BnStatistics::Track);
        let EpisodeLoss { loss, score, gradients } = self.judge(embedded, batch, 1.0, scale);
        let gradients = GradientsParams::from_grads(gradients, self);
        MetaGradients { loss, score, gradients: ScaledGrads::new(gradients, scale) }
    }

    /// Whether there are segments, if they are asked for.
    fn check(&self, _: &EpisodeBatch<B>) -> Result<(), AdaptError> {
        if self.checkpointing == Checkpointing::Segments && self.encoder.segments() < 2 {
            return Err(AdaptError::OneSegment { architecture: self.encoder.architecture() });
        }
        Ok(())
    }
}

/// Loss and score of embeddings, with the gradient.
struct EpisodeLoss<B: AutodiffBackend> {
    loss: Tensor<B::InnerBackend, 1>,
    score: Tensor<B::InnerBackend, 1>,
    /// Of the scaled share of the loss, by what is on the graph of the embeddings.
    gradients: B::Gradients,
}

impl<B, E> ProtoNet<B, E>
where
    B: AutodiffBackend,
    E: Encoder<B> + AutodiffModule<B>,
{
    /// Loss and score of embeddings that have a `share` in the loss of all.
    fn judge(
        &self,
        (support, queries): (EmbeddedSupport<B>, Tensor<B, 3>),
        batch: &EpisodeBatch<B>,
        share: f64,
        scale: LossScale,
    ) -> EpisodeLoss<B> {
        let [_, labels] = batch.labels();
        let ProtoLoss { loss, correct } =
            proto_loss(queries, support.prototypes(), labels, self.metric, self.scale);
        let gradients = phase_on::<B, _>(Phase::Backward, &loss.device(), || {
            let share = if share == 1.0 { loss.clone() } else { loss.clone() * share };
            scale.scale(share).into_inner().backward()
        });
        EpisodeLoss { loss: loss.inner(), score: correct.inner().mean(), gradients }
    }

    /// Task after task, of which nothing stays but gradients.
    fn by_segments(&self, batch: &EpisodeBatch<B>, scale: LossScale) -> MetaGradients<B> {
        let [labels, _] = batch.labels();
        let mut segments = Segments::new(&self.encoder, BnStatistics::Track, &labels.device());
        let share = 1.0 / batch.tasks() as f64;
        let (mut losses, mut scores) = (Vec::new(), Vec::new());
        for task in 0..batch.tasks() {
            let task = batch.part(task..task + 1);
            segments.pass(task.joined().flatten(0, 1), |features| {
                let EpisodeLoss { loss, score, gradients } =
                    self.judge(parted(features.unsqueeze(), &task), &task, share, scale);
                losses.push(loss);
                scores.push(score);
                gradients
            });
        }
        let mean = |tasks| Tensor::cat(tasks, 0).mean();
        let gradients = ScaledGrads::new(segments.gradients(), scale);
        MetaGradients { loss: mean(losses), score: mean(scores), gradients }
    }
}

/// A [`ProtoNet`] with the prototypes of its tasks.
#[derive(Clone, Debug)]
pub struct AdaptedProtoNet<B: Backend, E: Encoder<B>> {
    learner: ProtoNet<B, E>,
    prototypes: Tensor<B, 3>,
}

impl<B: Backend, E: Encoder<B>> AdaptedProtoNet<B, E> {
    /// Class means, `[t, ways, d]`.
    pub fn prototypes(&self) -> Tensor<B, 3> {
        self.prototypes.clone()
    }
}

impl<B: Backend, E: Encoder<B>> Adapted<B> for AdaptedProtoNet<B, E> {
    fn predict(&self, queries: Tensor<B, 5>) -> Tensor<B, 3> {
        let queries = embed_tasks(&self.learner.encoder, queries, BnStatistics::Running);
        self.learner.score(queries, self.prototypes.clone())
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests;
