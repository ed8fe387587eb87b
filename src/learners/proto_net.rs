use std::marker::PhantomData;

use burn::module::{AutodiffModule, Module};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_models::{BnStatistics, Encoder};

use super::{Adapted, Learner, MetaGradients, MetaLearner, scaled_gradients};
use crate::episode::{EpisodeBatch, Support};
use crate::metric::{Metric, ProtoLoss, proto_loss, prototypes, scores};
use crate::precision::{LossScale, Precision};

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
    _backend: PhantomData<B>,
}

impl<B: Backend, E: Encoder<B>> ProtoNet<B, E> {
    /// The paper's learner on top of `encoder`.
    pub fn new(encoder: E) -> Self {
        Self { encoder, metric: Metric::SquaredEuclidean, scale: 1.0, _backend: PhantomData }
    }

    /// With another score.
    ///
    /// Cosines span only -1 to 1, so a softmax over them wants a scale of about 10.
    pub fn with_metric(self, metric: Metric, scale: f64) -> Self {
        Self { metric, scale, ..self }
    }

    /// The network that embeds images.
    pub fn encoder(&self) -> &E {
        &self.encoder
    }

    /// `[t, n, c, h, w]` to `[t, n, d]`, all in one batch.
    fn embed(&self, images: Tensor<B, 5>, statistics: BnStatistics) -> Tensor<B, 3> {
        let [tasks, examples, ..] = images.dims();
        let embeddings = self.encoder.encode(images.flatten(0, 1), statistics);
        let features = embeddings.dims()[1];
        embeddings.reshape([tasks, examples, features])
    }

    /// Support and queries of each task in a batch of its own.
    fn embed_jointly(
        &self,
        batch: &EpisodeBatch<B>,
        statistics: BnStatistics,
    ) -> (Tensor<B, 3>, Tensor<B, 3>) {
        let shots = batch.support.images.dims()[1];
        let images = Tensor::cat(vec![batch.support.images.clone(), batch.queries.clone()], 1);
        let tasks = images.split(1, 0).into_iter().map(|task| self.embed(task, statistics));
        let embeddings = Tensor::cat(tasks.collect(), 0);
        let [tasks, examples, features] = embeddings.dims();
        let support = embeddings.clone().slice([0..tasks, 0..shots, 0..features]);
        (support, embeddings.slice([0..tasks, shots..examples, 0..features]))
    }

    fn score(&self, queries: Tensor<B, 3>, prototypes: Tensor<B, 3>) -> Tensor<B, 3> {
        let scores = scores(queries, prototypes, self.metric);
        if self.scale == 1.0 { scores } else { scores * self.scale }
    }
}

impl<B: Backend, E: Encoder<B>> Learner<B> for ProtoNet<B, E> {
    type Adapted = AdaptedProtoNet<B, E>;

    fn adapt(&self, support: &Support<B>) -> AdaptedProtoNet<B, E> {
        let embeddings = self.embed(support.images.clone(), BnStatistics::Running);
        let prototypes = prototypes(embeddings, support.labels.clone(), support.ways);
        AdaptedProtoNet { learner: self.clone(), prototypes }
    }

    /// Support and queries of an episode are normalised together.
    fn outputs(&self, batch: &EpisodeBatch<B>, statistics: BnStatistics) -> Tensor<B, 3> {
        if statistics == BnStatistics::Running {
            return self.adapt(&batch.support).predict(batch.queries.clone());
        }
        let (support, queries) = self.embed_jointly(batch, statistics);
        let prototypes = prototypes(support, batch.support.labels.clone(), batch.ways());
        self.score(queries, prototypes)
    }

    fn precision(&self) -> Precision {
        self.encoder.precision()
    }

    fn architecture(&self) -> String {
        let (metric, scale) = (self.metric, self.scale);
        format!("protonet({metric}, scale {scale}, {})", self.encoder.architecture())
    }
}

impl<B, E> MetaLearner<B> for ProtoNet<B, E>
where
    B: AutodiffBackend,
    E: Encoder<B> + AutodiffModule<B, InnerModule: Encoder<B::InnerBackend>>,
{
    fn meta_gradients(&self, batch: &EpisodeBatch<B>, scale: LossScale) -> MetaGradients<B> {
        let (support, queries) = self.embed_jointly(batch, BnStatistics::Track);
        let prototypes = prototypes(support, batch.support.labels.clone(), batch.ways());
        let labels = batch.query_labels.clone();
        let ProtoLoss { loss, correct } =
            proto_loss(queries, prototypes, labels, self.metric, self.scale);
        let gradients = scaled_gradients(loss.clone(), self, scale);
        MetaGradients { loss: loss.inner(), score: correct.inner().mean(), gradients }
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
        let queries = self.learner.embed(queries, BnStatistics::Running);
        self.learner.score(queries, self.prototypes.clone())
    }
}
