//! Meta-training: the loop, its run folder, and evaluation.

mod averages;
mod checkpoint;
mod curves;
#[cfg(feature = "train-tui")]
mod dashboard;
mod error;
mod evaluate;
mod event;
mod finite;
mod frozen;
mod meta_batch;
mod metrics;
mod micro_batches;
mod named_parameters;
mod options;
mod progress;
mod replica_group;
mod report;
mod run;
mod run_folder;
mod run_history;
mod step_gradients;
mod task_queue;
mod trainer;
mod weight_average;

pub use checkpoint::{Checkpoint, CheckpointError};
#[cfg(feature = "train-tui")]
pub use dashboard::dashboard;
pub use error::TrainError;
pub use evaluate::{
    Evaluation, EvaluationError, Evaluator, FeatureEvaluation, FeatureTest, Score, embed_all,
};
pub use event::{Event, print_lines};
pub use meta_batch::{find_meta_batch, fit_meta_batch};
pub use metrics::{StepMetrics, ValidationMetrics};
pub use named_parameters::{NamedParameters, OtherEncoder};
pub use progress::{Best, Progress};
pub use report::{Trained, TrainingReport};
pub use run_folder::RunFolder;
pub use run_history::{RunHistory, RunHistoryError, RunState};
pub use trainer::MetaTrainer;
