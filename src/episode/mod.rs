//! Few-shot tasks as tensors: episodes drawn from a class-indexed dataset, and regression tasks.
//!
//! Stands on [`data`](crate::data).

mod batch;
mod class_set;
mod draw;
mod error;
mod features;
mod kind;
mod list;
mod mini_batch;
mod mixing;
mod placement;
mod plan;
mod prepared;
mod protocol;
mod query_counts;
mod regression;
mod sampler;
mod sizes;
mod source;
mod upload;
mod varied;

pub use batch::{EpisodeBatch, EpisodeTensors, Support};
pub(crate) use batch::{images, one_hot};
pub use draw::{ClassDraw, Episode};
pub(crate) use draw::{ImageRef, Part};
pub use error::EpisodeError;
pub use features::{FeatureBatch, FeatureSampler};
pub use kind::{Classification, Examples, Measure, Regression, TaskKind};
pub use list::EpisodeList;
pub(crate) use mixing::MixedImages;
pub use mixing::Mixing;
pub use placement::DataPlacement;
pub use prepared::{PreparedTasks, Preparer};
pub use protocol::Protocol;
pub use query_counts::QueryCounts;
pub use regression::{RegressionBatch, RegressionSampler};
pub use sampler::EpisodeSampler;
pub(crate) use sizes::BatchSizes;
pub use sizes::EpisodeSizes;
pub use source::TaskSource;
pub(crate) use upload::uploaded;
