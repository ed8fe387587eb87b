use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::tensor::backend::Backend;

use crate::episode::{TaskKind, TaskSource};

/// Tasks that are learned from, or tested on, together.
pub struct Tasks<B: Backend, K: TaskKind> {
    /// Their place among the batches of the whole training, or of a validation, from 0.
    pub step: u64,
    /// The tasks.
    pub batch: K::Batch<B>,
}

/// Tasks of a source: [training](Self::training) takes new ones epoch after epoch,
/// [validations](Self::validation) take the same.
pub struct TaskLoader<B: Backend, T> {
    pub(super) source: Arc<T>,
    device: B::Device,
    /// Those of a validation, or of the first epoch.
    tasks: Range<u64>,
    batch_size: u64,
    /// Epochs of a training that were begun.
    epoch: Option<AtomicU64>,
}

impl<B: Backend, T: TaskSource> TaskLoader<B, T> {
    /// Epochs of so many steps with `meta_batch` tasks each.
    ///
    /// Step `s` of the training has the tasks from `s * meta_batch` on, as in
    /// [`MetaTrainer`](crate::train::MetaTrainer). A loader is not told which epoch it is asked for:
    /// each `iter` is the next one.
    ///
    /// # Panics
    /// On an epoch without a step, and a step without a task.
    pub fn training(source: T, steps: u64, meta_batch: u64, device: &B::Device) -> Self {
        assert!(steps > 0, "an epoch has at least one step");
        assert!(meta_batch > 0, "a meta-batch has at least one task");
        let (source, device, tasks) = (Arc::new(source), device.clone(), 0..steps * meta_batch);
        Self { source, device, tasks, batch_size: meta_batch, epoch: Some(AtomicU64::new(0)) }
    }

    /// The first `tasks` of `source`, in batches of [`test_batch_size`](TaskSource::test_batch_size), as an
    /// [`Evaluator`](crate::train::Evaluator) takes them.
    ///
    /// # Panics
    /// Without a task.
    pub fn validation(source: T, tasks: usize, device: &B::Device) -> Self {
        assert!(tasks > 0, "a validation needs at least one task");
        let (batch_size, device) = (source.test_batch_size() as u64, device.clone());
        Self { source: Arc::new(source), device, tasks: 0..tasks as u64, batch_size, epoch: None }
    }

    /// Training goes on after this epoch, counted from 1 as `SupervisedTraining::checkpoint` has it.
    pub fn checkpoint(self, epoch: usize) -> Self {
        Self { epoch: self.epoch.is_some().then(|| AtomicU64::new(epoch as u64)), ..self }
    }

    /// The step that the next epoch begins with.
    pub(super) fn next_step(&self) -> u64 {
        self.epochs() * (self.tasks.end - self.tasks.start) / self.batch_size
    }

    fn epochs(&self) -> u64 {
        self.epoch.as_ref().map_or(0, |epoch| epoch.load(Ordering::Relaxed))
    }

    fn with(&self, device: &B::Device, tasks: Range<u64>) -> Self {
        Self {
            source: self.source.clone(),
            device: device.clone(),
            tasks,
            batch_size: self.batch_size,
            epoch: self.epoch.as_ref().map(|_| AtomicU64::new(self.epochs())),
        }
    }
}

impl<B, T> DataLoader<B, Tasks<B, T::Kind>> for TaskLoader<B, T>
where
    B: Backend,
    T: TaskSource + Send + Sync + 'static,
{
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<Tasks<B, T::Kind>> + 'a> {
        let epoch = self.epoch.as_ref().map_or(0, |epoch| epoch.fetch_add(1, Ordering::Relaxed));
        let count = self.tasks.end - self.tasks.start;
        let first = self.tasks.start + epoch * count;
        Box::new(Batches { loader: self, all: first..first + count, next: first })
    }

    fn num_items(&self) -> usize {
        (self.tasks.end - self.tasks.start) as usize
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, Tasks<B, T::Kind>>> {
        Arc::new(self.with(device, self.tasks.clone()))
    }

    /// # Panics
    /// When the tasks are not among those here, and in training on anything but the whole:
    /// `burn-train` slices to share tasks among devices, and adds up what their gradients should be
    /// averaged to.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, Tasks<B, T::Kind>>> {
        let all = self.num_items();
        assert!(
            self.epoch.is_none() || (start, end) == (0, all),
            "tasks {start} to {end} of {all}: an epoch is not divided among devices, whose \
             gradients burn-train would add up instead of averaging them"
        );
        assert!(start <= end && end <= all, "tasks {start} to {end} of {all}");
        let first = self.tasks.start;
        Arc::new(self.with(&self.device, first + start as u64..first + end as u64))
    }
}

/// Batches of one epoch.
struct Batches<'a, B: Backend, T> {
    loader: &'a TaskLoader<B, T>,
    all: Range<u64>,
    next: u64,
}

impl<B: Backend, T: TaskSource> Iterator for Batches<'_, B, T> {
    type Item = Tasks<B, T::Kind>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.next;
        if first >= self.all.end {
            return None;
        }
        let TaskLoader { source, device, batch_size, .. } = self.loader;
        self.next = (first + batch_size).min(self.all.end);
        let batch = source.tasks::<B>(first..self.next, device);
        Some(Tasks { step: first / batch_size, batch })
    }
}

impl<B: Backend, T: TaskSource> DataLoaderIterator<Tasks<B, T::Kind>> for Batches<'_, B, T> {
    fn progress(&self) -> Progress {
        let tasks = |end| (end - self.all.start) as usize;
        Progress { items_processed: tasks(self.next), items_total: tasks(self.all.end) }
    }
}
