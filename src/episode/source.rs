use std::ops::Range;

use burn::tensor::backend::Backend;
use serde_json::Value;

use super::{DataPlacement, EpisodeError, EpisodeSampler, TaskKind};

/// Where tasks come from: the one with index `i` is a pure function of the source and `i`.
pub trait TaskSource {
    /// What the tasks ask for.
    type Kind: TaskKind;

    /// The tasks with these indices as tensors, in this order.
    fn tasks<B: Backend>(
        &self,
        indices: Range<u64>,
        device: &B::Device,
    ) -> <Self::Kind as TaskKind>::Batch<B>;

    /// Decides where the data of tasks lies on `device`, of which so many bytes are free, if that is
    /// known; of several devices, one after the other.
    ///
    /// # Errors
    /// Where it cannot lie where the source was told to keep it.
    fn place_data<B: Backend>(
        &mut self,
        _device: &B::Device,
        _free: Option<u64>,
    ) -> Result<DataPlacement, EpisodeError> {
        Ok(DataPlacement::Host)
    }

    /// Number of tasks in one batch of a test: enough to keep the device busy, few enough to stay in cache.
    fn test_batch_size(&self) -> usize;

    /// The sampler, where tasks are nothing but its episodes: a test then needs each of their images
    /// only once.
    fn episodes(&self) -> Option<&EpisodeSampler> {
        None
    }

    /// What a run must find unchanged when it resumes.
    fn settings(&self) -> Value;
}
