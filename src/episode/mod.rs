//! Episodes: few-shot tasks drawn from a class-indexed dataset.
//!
//! Stands on [`data`](crate::data).

mod batch;
mod episode;
mod error;
mod protocol;
mod sampler;

pub use batch::{EpisodeBatch, Support};
pub use episode::{ClassDraw, Episode};
pub use error::EpisodeError;
pub use protocol::Protocol;
pub use sampler::{EpisodeSampler, SampleEpisodes};
