//! Sources of tasks that tests compare with those of the library.

use std::ops::Range;

use burn::tensor::backend::Backend;
use fewshot::data::DataError;
use fewshot::episode::{Classification, EpisodeBatch, EpisodeSampler, TaskSource};
use serde_json::Value;

/// Batches of a sampler and nothing else: neither tasks ahead of their step nor embeddings that a test computes once.
#[derive(Clone)]
pub struct BatchesAlone(pub EpisodeSampler);

impl TaskSource for BatchesAlone {
    type Kind = Classification;

    fn tasks<B: Backend>(
        &self,
        indices: Range<u64>,
        device: &B::Device,
    ) -> Result<EpisodeBatch<B>, DataError> {
        self.0.try_batch(indices, device)
    }

    fn test_batch_size(&self) -> usize {
        self.0.test_batch_size()
    }

    fn settings(&self) -> Value {
        self.0.settings()
    }
}
