//! Training by `burn-train`, with its dashboard in the terminal, metrics, checkpoints and early
//! stopping; with the feature `train-tui`.
//!
//! A [`MetaModel`] is a learner as the model that `burn-train` trains, and [`TaskLoader`]s bring its
//! tasks. An epoch is a number of meta-steps. The learner ends with the parameters that
//! [`MetaTrainer`](super::MetaTrainer) would have given it from the same tasks, optimizer and learning rate.
//!
//! # Conventions
//! - One device: a [`TaskLoader`] refuses the strategy for several, which differentiates in several
//!   threads at once, and adds up the gradients that a meta-batch averages.
//! - No `grads_accumulation`, which adds up gradients as well, and drops the last ones of an epoch whose
//!   number of steps it does not divide: a [`MetaModel`] refuses it. Enlarge the meta-batch instead.
//! - To go on after an epoch, [`TaskLoader::checkpoint`] and `SupervisedTraining::checkpoint`
//!   want its number. The run then ends bit for bit as if it had never stopped, if recorded by
//!   `burn::record::DefaultRecorder`: `CompactRecorder` rounds parameters to 16 bits.
//! - `launch` gives the learner as the last epoch left it, `MetaTrainer` the one of the best
//!   validation; here that one is among the checkpoints, from which `Module::load_file` takes it.
//! - Early stopping and the choice of checkpoints go by what the thread of the metrics has noted
//!   when an epoch ends, which may lack the last batch of the validation: give it several. They see
//!   nothing of the first epoch after a checkpoint, whose metrics `burn-train` 0.21 files under
//!   epoch 1.
//! - Every step of an optimizer works on a copy of the model, so parameters are there twice.
//!
//! # Example
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use burn::backend::{Autodiff, Flex};
//! use burn::record::DefaultRecorder;
//! use fewshot::prelude::*;
//! use fewshot::train::dashboard::burn_train::metric::{AccuracyMetric, LossMetric};
//! use fewshot::train::dashboard::burn_train::{Learner as Trainee, SupervisedTraining};
//! use fewshot::train::dashboard::{MeanScore, MetaModel, TaskLoader};
//!
//! type B = Autodiff<Flex>;
//!
//! # let folder = tempfile::tempdir()?;
//! let device = Default::default();
//! let glyphs = Glyphs::generate(&GlyphsConfig::default());
//! let train = glyphs.train.sampler(Protocol::new(5, 1).with_queries(5), 7)?;
//! let validation = glyphs.validation.sampler(Protocol::new(5, 1), 11)?;
//!
//! // Epochs of two steps, each on a meta-batch of one task.
//! let train = TaskLoader::<B, _>::training(train, 2, 1, &device);
//! let learner = ProtoNet::new(Conv4Config::omniglot().init(&device));
//! let model = MetaModel::new(learner, &train)?;
//! let validation = Arc::new(TaskLoader::<Flex, _>::validation(validation, 8, &device));
//!
//! let trained = SupervisedTraining::new(&folder, Arc::new(train), validation)
//!     .metrics((LossMetric::new(), AccuracyMetric::new()))
//!     .metric_valid_numeric(MeanScore::new())
//!     .with_file_checkpointer(DefaultRecorder::new())
//!     .num_epochs(1)
//!     .launch(Trainee::new(model, Adam::new().init(), 1e-3));
//! let test = glyphs.test.sampler(Protocol::new(5, 1), 11)?;
//! println!("{}", Evaluator::new(10).run(trained.model.learner(), &test, &device));
//! # Ok(())
//! # }
//! ```

mod loader;
mod mean_score;
mod model;
mod outcome;

pub use burn_train;
pub use loader::{TaskLoader, Tasks};
pub use mean_score::MeanScore;
pub use model::{MetaModel, MetaModelError};
pub use outcome::{HostOutcome, Outcome};

#[cfg(all(test, feature = "flex"))]
mod tests;
