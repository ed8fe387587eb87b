//! What a run was told, from which its learner is made.

mod classical;
mod inner;

use burn::module::AutodiffModule;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot::data::{ImageShape, Split};
use fewshot::episode::Protocol;
use fewshot::hardware::Checkpointing;
use fewshot::learners::heads::AnyHead;
use fewshot::learners::{BaseClassifierConfig, Inductive, Maml, MetaLearner, Plastic, ProtoNet};
use fewshot::metric::Metric;
use fewshot::models::{BnStatistics, Classifier, Conv4, Conv4Config, Downsampling, Readout};
use fewshot::plasticity::TraceRule;
use fewshot::precision::Precision;
use fewshot::train::{Checkpoint, TrainError};
use serde::{Deserialize, Serialize};

pub(crate) use inner::InnerRecipe;

use super::args::{BatchNormRule, Method};
use super::data_spec::{FolderOptions, ImageSpec};
use super::defaults::Benchmark;
use super::error::CliError;

/// What a run was told that its resumption must repeat and its test can look up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recipe {
    pub(crate) method: Method,
    pub(crate) data: ImageSpec,
    pub(crate) split: Split,
    pub(crate) folder: FolderOptions,
    pub(crate) image: ImageShape,
    pub(crate) test: Protocol,
    pub(crate) metric: Metric,
    pub(crate) inner: Option<InnerRecipe>,
    /// The classifier of all training classes, where there is classical training.
    #[serde(default)]
    pub(crate) classical: Option<BaseClassifierConfig>,
    pub(crate) learning_rate: f64,
    /// Never, where there is none.
    pub(crate) halve_every: Option<usize>,
    /// What the network's products compute in.
    #[serde(default)]
    pub(crate) precision: Precision,
    pub(crate) seed: u64,
}

/// Work on a learner, whichever it is.
pub(crate) trait LearnerJob<B: AutodiffBackend> {
    type Output;

    fn run<L: MetaLearner<B>>(self, learner: L) -> Result<Self::Output, CliError>;
}

/// Cosines span only -1 to 1.
const COSINE_SCALE: f64 = 10.0;

impl Recipe {
    /// Runs `job` with the learner, its parameters freshly drawn.
    pub(crate) fn with_learner<B: AutodiffBackend, J: LearnerJob<B>>(
        &self,
        device: &B::Device,
        checkpointing: Checkpointing,
        job: J,
    ) -> Result<J::Output, CliError> {
        let (config, encoder) = self.drawn::<B>(device)?;
        if self.method == Method::Plastic {
            let ways = self.test.ways;
            let rule = TraceRule::default();
            return job.run(Plastic::new(encoder, config.features(), ways, rule, device));
        }
        if let Some(learner) = self.inductive(encoder.clone(), &config, device) {
            return job.run(learner);
        }
        let Some(inner) = self.inner else {
            return job.run(self.proto_net(encoder).with_checkpointing(checkpointing));
        };
        let classifier = Classifier::new(encoder, config.features(), self.test.ways, device);
        match self.method {
            Method::ProtoMaml => {
                job.run(inner.set(Maml::prototypical(classifier, inner.inner_loop()))?)
            }
            method => job.run(inner.learner(method, classifier)?),
        }
    }

    /// The network, its parameters freshly drawn.
    fn drawn<B: Backend>(&self, device: &B::Device) -> Result<(Conv4Config, Conv4<B>), CliError> {
        let config = self.network()?;
        self.precision.check::<B>(device).map_err(TrainError::from)?;
        B::seed(device, self.seed);
        let encoder = config.init(device);
        Ok((config, encoder))
    }

    fn proto_net<B: Backend>(&self, encoder: Conv4<B>) -> ProtoNet<B, Conv4<B>> {
        let learner = ProtoNet::new(encoder);
        match self.metric {
            Metric::SquaredEuclidean => learner,
            Metric::Cosine => learner.with_metric(Metric::Cosine, COSINE_SCALE),
        }
    }

    /// The learner of a method that is a head on embeddings.
    fn inductive<B: Backend>(
        &self,
        encoder: Conv4<B>,
        config: &Conv4Config,
        device: &B::Device,
    ) -> Option<Inductive<B, Conv4<B>, AnyHead<B>>> {
        let head = AnyHead::with_name(&self.method.to_string(), config.maps(), device)?;
        let learner = Inductive::new(encoder, head);
        Some(match &self.classical {
            Some(classes) => learner.with_base_classifier(classes.init(device)),
            None => learner,
        })
    }

    /// The encoder that was trained, to put another head on.
    ///
    /// # Errors
    /// When the method trains encoders for its own use, or the checkpoint is not of this recipe.
    pub(crate) fn encoder<B: AutodiffBackend>(
        &self,
        checkpoint: &Checkpoint,
        device: &B::Device,
    ) -> Result<Conv4<B::InnerBackend>, CliError> {
        let (config, encoder) = self.drawn::<B>(device)?;
        if let Some(learner) = self.inductive(encoder.clone(), &config, device) {
            return Ok(checkpoint.load::<B, _, _>(learner, device)?.encoder().valid());
        }
        if self.method == Method::Protonet {
            let learner = self.proto_net(encoder);
            return Ok(checkpoint.load::<B, _, _>(learner, device)?.encoder().valid());
        }
        Err(CliError::Usage(format!(
            "the encoder of {} was trained to adapt: no other method can be put on it",
            self.method
        )))
    }

    /// Whether outputs are classes of their own, so that all tasks have one number of them.
    pub(crate) fn has_outputs(&self) -> bool {
        self.inner.is_some() || self.method == Method::Plastic
    }

    /// The network.
    ///
    /// # Errors
    /// When nothing of an image is left behind its last block.
    pub(crate) fn network(&self) -> Result<Conv4Config, CliError> {
        let ImageShape { channels, height, width } = self.image;
        let config = Conv4Config::new([channels, height, width])
            .with_precision(self.precision)
            .with_context(if self.method == Method::Cavia { 100 } else { 0 });
        let config = match (self.inner, Benchmark::of(self.image)) {
            (None, _) => config,
            (Some(_), Benchmark::Omniglot) => {
                config.with_downsampling(Downsampling::Stride).with_readout(Readout::Average)
            }
            (Some(_), _) => config.with_channels(32),
        };
        match (config.fits(), config.blocks) {
            (true, _) => Ok(config),
            (false, blocks) => Err(CliError::Failed(format!(
                "images of {} are too small for {blocks} blocks",
                self.image
            ))),
        }
    }

    /// What batch-norm normalises with in the test.
    ///
    /// # Errors
    /// When the method gathers no running averages and was told to use them.
    pub(crate) fn statistics(
        &self,
        asked: Option<BatchNormRule>,
    ) -> Result<BnStatistics, CliError> {
        match (self.inner, asked) {
            (Some(_), Some(BatchNormRule::Running)) => Err(CliError::Usage(format!(
                "{} gathers no running averages, so --batch-norm running is not for it",
                self.method
            ))),
            (None, Some(BatchNormRule::Support)) => Err(CliError::Usage(format!(
                "--batch-norm support is for maml and its relatives, not for {}",
                self.method
            ))),
            (Some(_), _) | (None, Some(BatchNormRule::Batch)) => Ok(BnStatistics::Batch),
            (None, None | Some(BatchNormRule::Running)) => Ok(BnStatistics::Running),
        }
    }
}
