//! Episodes: few-shot tasks drawn from a class-indexed dataset.
//!
//! Stands on [`data`](crate::data).

mod batch;
mod draw;
mod error;
mod protocol;
mod sampler;

pub use batch::{EpisodeBatch, Support};
pub use draw::{ClassDraw, Episode};
pub use error::EpisodeError;
pub use protocol::Protocol;
pub use sampler::{EpisodeSampler, SampleEpisodes};
