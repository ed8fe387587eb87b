use std::ops::Range;

use burn::tensor::backend::Backend;
use serde_json::Value;

use super::{DataPlacement, EpisodeError, EpisodeSampler, PreparedTasks, Preparer, TaskKind};
use crate::data::DataError;

/// Where tasks come from: the one with index `i` is a pure function of the source and `i`.
pub trait TaskSource {
    /// The kind of the tasks: classification, regression, or another one.
    type Kind: TaskKind;

    /// The tasks with these indices as tensors, in this order.
    ///
    /// # Errors
    /// If data of a task lies in a file that cannot be read.
    fn tasks<B: Backend>(
        &self,
        indices: Range<u64>,
        device: &B::Device,
    ) -> Result<<Self::Kind as TaskKind>::Batch<B>, DataError>;

    /// The function that makes the host's share of tasks ahead of steps, in a thread of its own; `None` where there is
    /// too little to do for a thread.
    fn preparer(&self) -> Option<Preparer> {
        None
    }

    /// The [`tasks`](Self::tasks), of which the [preparer](Self::preparer) of this source has made the host's share.
    ///
    /// # Errors
    /// If data of a task lies in a file that cannot be read.
    fn tasks_from<B: Backend>(
        &self,
        indices: Range<u64>,
        prepared: PreparedTasks,
        device: &B::Device,
    ) -> Result<<Self::Kind as TaskKind>::Batch<B>, DataError> {
        let _ = prepared;
        self.tasks(indices, device)
    }

    /// Number of views of each task in a test, over which predictions are averaged.
    fn views(&self) -> u32 {
        1
    }

    /// The tasks as view `view` shows them; view 0 is [`tasks`](Self::tasks).
    ///
    /// # Errors
    /// If data of a task lies in a file that cannot be read.
    fn view<B: Backend>(
        &self,
        indices: Range<u64>,
        view: u32,
        device: &B::Device,
    ) -> Result<<Self::Kind as TaskKind>::Batch<B>, DataError> {
        let _ = view;
        self.tasks(indices, device)
    }

    /// Decides whether the data of tasks is kept on `device`, which has `_free` bytes free if that is known;
    /// called once for each device.
    ///
    /// # Errors
    /// If the data does not fit where the source is set to keep it.
    fn place_data<B: Backend>(
        &mut self,
        _device: &B::Device,
        _free: Option<u64>,
    ) -> Result<DataPlacement, EpisodeError> {
        Ok(DataPlacement::Host)
    }

    /// Number of tasks in one batch of a test: enough to keep the device busy, few enough to stay in cache.
    fn test_batch_size(&self) -> usize;

    /// True if all tasks have the same numbers of classes and of examples, so that several make a batch. Tasks of
    /// other sources are asked for one by one.
    fn has_equal_sizes(&self) -> bool {
        true
    }

    /// True of tasks with queries, by which a test judges a learner.
    fn has_queries(&self) -> bool {
        true
    }

    /// The sampler, where tasks are nothing but its episodes: a test then needs each of their images
    /// only once.
    fn episodes(&self) -> Option<&EpisodeSampler> {
        None
    }

    /// Settings that a resumed run must find unchanged.
    fn settings(&self) -> Value;
}
