//! Learners behind one interface, [`Learner::adapt`], then [`Adapted::predict`]; each paper has a
//! file, except the relatives of [`Maml`], whose constructors share `maml/relatives.rs`.
//!
//! A method that works on embeddings is a [head](heads), which [`EmbeddingLearner`] puts on an encoder.

mod base_classifier;
mod embed;
mod embedding_learner;
pub mod heads;
mod maml;
mod network;
mod plastic;

pub use base_classifier::{BaseClassifier, BaseClassifierConfig, BaseLogits};
pub use embedding_learner::{AdaptedHead, EmbeddingLearner, ProtoNet};
pub use maml::{AdaptedMaml, Annealing, Maml};
pub(crate) use network::lanes_of;
pub use network::{AdaptableNetwork, Network};
pub use plastic::{AdaptedPlastic, Plastic};

use burn::module::{AutodiffModule, Module};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor};
use fewshot_kernels::TaskLossOptions;
use fewshot_models::BnStatistics;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::heads::EmbeddedSupport;
use crate::adapt::AdaptError;
use crate::episode::{Classification, TaskKind};
pub use crate::metric::accuracies;
use crate::phase::{Phase, phase_on};
use crate::precision::{LossScale, Precision, ScaledGrads};

/// A learner: it learns a task from a few examples, by default labelled ones ([`Classification`]).
pub trait Learner<B: Backend, K: TaskKind = Classification>: Module<B> {
    /// A learner that has learned tasks: a value that shares nothing with the learner's later states, by
    /// default [`Adapted`].
    type Adapted;

    /// Learns the tasks of `support`, with the batch-norm [`statistics`](Self::statistics).
    fn adapt(&self, support: &K::Support<B>) -> Self::Adapted;

    /// Logits `[t, q, ways]`, or values `[t, q, d]`, for the queries of whole tasks.
    ///
    /// Under [`BnStatistics::Batch`] and [`BnStatistics::Track`] the images of each task are
    /// normalised apart from those of other tasks: support and queries together or separately, as
    /// the learner says. Under its own [`statistics`](Self::statistics) of
    /// [`BnStatistics::Running`] this is `adapt` followed by `predict`.
    fn outputs(&self, batch: &K::Batch<B>, statistics: BnStatistics) -> Tensor<B, 3>;

    /// The same learner, where under [`BnStatistics::Running`] it compares embeddings and nothing
    /// else: a test then embeds each image once, however many episodes show it.
    fn on_embeddings(&self) -> Option<&dyn OnEmbeddings<B>> {
        None
    }

    /// Statistics that batch-norm normalises with in a test, unless the caller says otherwise.
    fn statistics(&self) -> BnStatistics {
        BnStatistics::Running
    }

    /// Moments of queries in a test where batch-norm takes those of the batch at hand.
    fn query_norm(&self) -> QueryNorm {
        QueryNorm::Together
    }

    /// True if outputs of a query depend on the other queries of its task, whatever batch-norm
    /// normalises with. All queries of a task then belong in one call.
    fn transductive(&self) -> bool {
        false
    }

    /// The precision in which the learner's products are computed; all else is `f32`.
    fn precision(&self) -> Precision {
        Precision::F32
    }

    /// Further settings that must be unchanged when a run resumes.
    fn settings(&self) -> Value {
        Value::Null
    }

    /// Method and network, for reports and to tell whether a checkpoint fits.
    fn architecture(&self) -> String;
}

/// A learner whose [`Learner::outputs`] under [`BnStatistics::Running`] are the logits
/// [`of_embeddings`](Self::of_embeddings) of support and queries.
pub trait OnEmbeddings<B: Backend> {
    /// Embeddings `[n, d]` of `images` `[n, c, h, w]`, each of its own image alone.
    fn embed(&self, images: Tensor<B, 4>) -> Tensor<B, 2>;

    /// Logits `[t, q, ways]` of embedded queries, `[t, q, d]`.
    fn of_embeddings(&self, support: EmbeddedSupport<B>, queries: Tensor<B, 3>) -> Tensor<B, 3>;
}

/// Moments that batch-norm normalises queries with where it takes the batch at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryNorm {
    /// All queries of the task: a transductive test.
    #[default]
    Together,
    /// The support and the one query: an inductive test, with a forward pass for each query.
    ///
    /// # Source
    /// Nichol, Achiam and Schulman, "On First-Order Meta-Learning Algorithms", 2018, section 6.1.
    Alone,
}

/// A classifier, or a function, for the tasks it was adapted to.
pub trait Adapted<B: Backend> {
    /// Logits or values of every query of every task: `[t, q, c, h, w]` to `[t, q, d]`; inputs that
    /// are plain vectors are `[t, q, d, 1, 1]`. Of a [transductive](Learner::transductive) learner
    /// they depend on which queries are asked together.
    fn predict(&self, queries: Tensor<B, 5>) -> Tensor<B, 3>;
}

/// A learner that can be meta-trained.
///
/// Only one thread of a program may differentiate, or ask a learner for gradients, at a time: Burn 0.21
/// can lose them otherwise.
pub trait MetaLearner<B: AutodiffBackend, K: TaskKind = Classification>:
    Learner<B, K> + AutodiffModule<B, InnerModule: Learner<B::InnerBackend, K>>
{
    /// True if a step may draw random numbers of the backend; see
    /// [`Encoder::draws`](fewshot_models::Encoder::draws). `true` is always right.
    fn draws(&self) -> bool {
        true
    }

    /// The mean loss over all queries of `batch`, and its gradient times `scale`, by default of the
    /// loss of [`Learner::outputs`] under [`BnStatistics::Track`].
    fn meta_gradients(&self, batch: &K::Batch<B>, scale: LossScale) -> MetaGradients<B> {
        let outputs = self.outputs(batch, BnStatistics::Track);
        let tasks = outputs.dims()[0];
        let targets = K::queries_of(batch, 0..tasks).targets;
        let share = 1.0 / tasks as f64;
        let options = TaskLossOptions { factor: share, ..Default::default() };
        let loss = K::loss_with(outputs.clone(), targets.clone(), options);
        let gradients = scaled_gradients(loss.clone(), self, scale);
        let score = K::scaled_score(outputs.inner(), targets.inner(), share);
        MetaGradients { loss: loss.inner(), score, gradients }
    }

    /// Called by a trainer before each step with the number of steps done, for a learner that
    /// changes in the course of training. What the learner becomes depends on this number alone, so
    /// that a run that resumes goes on as if it had never stopped.
    fn at_step(&mut self, step: u64) {
        let _ = step;
    }

    /// Checks that the learner can be trained on tasks such as those of `batch`; a trainer asks before
    /// its first step.
    fn check(&self, batch: &K::Batch<B>) -> Result<(), AdaptError> {
        let _ = batch;
        Ok(())
    }

    /// Where adaptation to `batch` first has a value that is not finite, for a learner that adapts
    /// in steps; to be called when a loss was not finite.
    fn divergence(&self, batch: &K::Batch<B>) -> Option<Divergence> {
        let _ = batch;
        None
    }
}

/// The place at which an inner loop had a value that was not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Index of the first task of the batch in which it did.
    pub task: usize,
    /// Its inner step after which a fast weight, or the loss of the queries, was not finite, from 1.
    pub step: usize,
}

/// Gradients and figures that one meta-training step learns from its episodes.
#[derive(Debug)]
pub struct MetaGradients<B: AutodiffBackend> {
    /// Mean loss over all queries, or whatever outer loss the learner has, `[1]`.
    pub loss: Tensor<B::InnerBackend, 1>,
    /// Mean over tasks of their score, `[1]`: in classification, the share of queries classified
    /// correctly.
    pub score: Tensor<B::InnerBackend, 1>,
    /// Gradient of the loss by parameter, scaled.
    pub gradients: ScaledGrads,
}

/// The gradient of `loss` times `scale` by the parameters of `module`.
fn scaled_gradients<B: AutodiffBackend, M: AutodiffModule<B>>(
    loss: Tensor<B, 1>,
    module: &M,
    scale: LossScale,
) -> ScaledGrads {
    let device = loss.device();
    phase_on::<B, _>(Phase::Backward, &device, || scale.scale(loss).backward(module))
}

/// Mean cross-entropy of `logits` `[t, q, ways]` and `labels` `[t, q]`.
///
/// The PyTorch equivalent is `F.cross_entropy(logits.flatten(0, 1), labels.flatten())`.
pub fn cross_entropy<B: Backend>(logits: Tensor<B, 3>, labels: Tensor<B, 2, Int>) -> Tensor<B, 1> {
    let loss = CrossEntropyLossConfig::new().init(&logits.device());
    loss.forward(logits.flatten(0, 1), labels.flatten(0, 1))
}
