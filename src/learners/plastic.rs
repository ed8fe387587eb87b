use burn::module::{AutodiffModule, Module};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_kernels::product;
use fewshot_models::nn::drawn;
use fewshot_models::{BnStatistics, Encoder};

use super::embed::{embed_jointly, embed_support, embed_tasks};
use super::heads::EmbeddedSupport;
use super::{Adapted, Learner, MetaLearner};
use crate::adapt::AdaptError;
use crate::episode::{EpisodeBatch, Support};
use crate::plasticity::{PlasticConnections, TraceRule};
use crate::precision::Precision;

/// Differentiable plasticity: an encoder with plastic connections to the outputs.
///
/// The examples of the support are shown one after the other while their labels clamp the outputs,
/// so that the trace of the connections binds features to classes; queries are answered through
/// fixed and plastic parts, `f(x) (w + alpha * H)`, and the trace is held. Everything is trained
/// through the traces by the loss of the queries.
///
/// # Conventions
/// By the rule of Oja, as in the paper's experiment on Omniglot. Outputs are clamped to exactly one
/// and zeros, which the authors reach by adding 1000 before the softmax. The loss is cross-entropy
/// (the authors' is binary), and all queries of an episode are answered by one trace. Examples
/// that were shown early are forgotten more: with [`TraceRule::Oja`] as later ones of the same class
/// come, so that with one shot their order does not matter, with [`TraceRule::Hebb`] as any come.
///
/// # Source
/// Miconi, Clune and Stanley, "Differentiable plasticity: training plastic neural networks with
/// backpropagation", ICML 2018, section 4.3.
#[derive(Module, Debug)]
pub struct Plastic<B: Backend, E> {
    encoder: E,
    /// The connections to the outputs.
    pub connections: PlasticConnections<B>,
}

/// The rate that traces begin with; a support is shown but once here.
const ETA: f64 = 0.1;

impl<B: Backend, E: Encoder<B>> Plastic<B, E> {
    /// Plastic connections from the `features` of `encoder` to `ways` outputs.
    pub fn new(
        encoder: E,
        features: usize,
        ways: usize,
        rule: TraceRule,
        device: &B::Device,
    ) -> Self {
        let connections = PlasticConnections::new([features, ways], rule, ETA, device);
        drawn(Self { encoder, connections })
    }

    /// The connections after the support, of features `[t, n, d]`, was shown.
    fn effective_weights(&self, support: EmbeddedSupport<B>) -> Tensor<B, 3> {
        self.check_ways(support.ways).unwrap_or_else(|error| panic!("{error}"));
        let [tasks, examples, _] = support.embeddings.dims();
        let (features, labels) = (&support.embeddings, &support.one_hot());
        let trace = (0..examples).fold(self.connections.zero_trace(tasks), |trace, example| {
            let [x, y] = [features, labels].map(|all| all.clone().narrow(1, example, 1));
            self.connections.update_trace(trace, x, y)
        });
        self.connections.effective(trace)
    }

    fn check_ways(&self, ways: usize) -> Result<(), AdaptError> {
        match self.connections.weight.dims()[1] {
            outputs if outputs == ways => Ok(()),
            outputs => Err(AdaptError::Ways { ways, outputs }),
        }
    }
}

impl<B: Backend, E: Encoder<B>> Learner<B> for Plastic<B, E> {
    type Adapted = AdaptedPlastic<B, E>;

    fn adapt(&self, support: &Support<B>) -> AdaptedPlastic<B, E> {
        let connections = self.effective_weights(embed_support(&self.encoder, support));
        AdaptedPlastic { learner: self.clone(), connections }
    }

    /// Support and queries of an episode are normalised together.
    fn outputs(&self, batch: &EpisodeBatch<B>, statistics: BnStatistics) -> Tensor<B, 3> {
        if statistics == BnStatistics::Running {
            return self.adapt(&batch.support).predict(batch.queries.clone());
        }
        let (support, queries, _) = embed_jointly(&self.encoder, batch, statistics).parts();
        product(queries, self.effective_weights(support))
    }

    fn precision(&self) -> Precision {
        self.encoder.precision()
    }

    fn architecture(&self) -> String {
        let [_, ways] = self.connections.weight.dims();
        let (rule, encoder) = (self.connections.rule(), self.encoder.architecture());
        format!("plastic({rule:?}, {ways} ways, {encoder})")
    }
}

impl<B, E> MetaLearner<B> for Plastic<B, E>
where
    B: AutodiffBackend,
    E: Encoder<B> + AutodiffModule<B, InnerModule: Encoder<B::InnerBackend>>,
{
    fn draws(&self) -> bool {
        self.encoder.draws()
    }

    fn check(&self, batch: &EpisodeBatch<B>) -> Result<(), AdaptError> {
        if !batch.has_queries() {
            return Err(AdaptError::NoQueries);
        }
        self.check_ways(batch.ways())
    }
}

/// A [`Plastic`] learner with the connections that its tasks left.
#[derive(Clone, Debug)]
pub struct AdaptedPlastic<B: Backend, E: Encoder<B>> {
    learner: Plastic<B, E>,
    /// Fixed and plastic parts together, `[t, features, ways]`.
    /// Fixed and plastic parts together, `[t, features, ways]`.
    pub connections: Tensor<B, 3>,
}

impl<B: Backend, E: Encoder<B>> Adapted<B> for AdaptedPlastic<B, E> {
    fn predict(&self, queries: Tensor<B, 5>) -> Tensor<B, 3> {
        let features = embed_tasks(&self.learner.encoder, queries, BnStatistics::Running);
        product(features, self.connections.clone())
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests;
