use burn::tensor::backend::Backend;
use fewshot::data::{ImageShape, Split};
use fewshot::episode::Protocol;
use fewshot::learners::ProtoNet;
use fewshot::metric::Metric;
use fewshot::models::{Conv4, Conv4Config};
use serde::{Deserialize, Serialize};

use super::args::{BatchNormRule, Method};
use super::data_spec::{DataSpec, FolderOptions};
use super::error::CliError;

/// What a run was told that its resumption must repeat and its test can look up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recipe {
    pub(crate) method: String,
    pub(crate) data: DataSpec,
    pub(crate) split: Split,
    pub(crate) folder: FolderOptions,
    pub(crate) image: ImageShape,
    pub(crate) test: Protocol,
    pub(crate) metric: Metric,
    pub(crate) learning_rate: f64,
    pub(crate) halve_every: usize,
    pub(crate) seed: u64,
}

/// Cosines span only -1 to 1.
const COSINE_SCALE: f64 = 10.0;

impl Recipe {
    /// The learner with freshly drawn parameters.
    pub(crate) fn learner<B: Backend>(
        &self,
        device: &B::Device,
    ) -> Result<ProtoNet<B, Conv4<B>>, CliError> {
        let ImageShape { channels, height, width } = self.image;
        let config = Conv4Config::new([channels, height, width]);
        if !config.fits() {
            let blocks = config.blocks;
            let reason = format!("images of {} are too small for {blocks} blocks", self.image);
            return Err(CliError::Failed(reason));
        }
        B::seed(device, self.seed);
        let learner = ProtoNet::new(config.init(device));
        Ok(match self.metric {
            Metric::SquaredEuclidean => learner,
            Metric::Cosine => learner.with_metric(Metric::Cosine, COSINE_SCALE),
        })
    }
}

impl Method {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Protonet => "protonet",
        }
    }
}

impl From<BatchNormRule> for fewshot::models::BnStatistics {
    fn from(rule: BatchNormRule) -> Self {
        match rule {
            BatchNormRule::Running => Self::Running,
            BatchNormRule::Batch => Self::Batch,
        }
    }
}
