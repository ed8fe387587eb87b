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

/// Training tasks of a source: epoch after epoch new ones.
///
/// Step `s` of the training has the tasks from `s * meta_batch` on, as in
/// [`MetaTrainer`](crate::train::MetaTrainer). A loader is not told which epoch it is asked for: each
/// `iter` is the next one.
pub struct TrainingTasks<B: Backend, T> {
    source: Arc<T>,
    steps: u64,
    meta_batch: u64,
    device: B::Device,
    /// Epochs begun.
    epoch: AtomicU64,
}

impl<B: Backend, T> TrainingTasks<B, T> {
    /// Epochs of so many steps with `meta_batch` tasks each.
    ///
    /// # Panics
    /// On an epoch without a step, and a step without a task.
    pub fn new(source: T, steps: u64, meta_batch: u64, device: &B::Device) -> Self {
        assert!(steps > 0, "an epoch has at least one step");
        assert!(meta_batch > 0, "a meta-batch has at least one task");
        let (source, device) = (Arc::new(source), device.clone());
        Self { source, steps, meta_batch, device, epoch: AtomicU64::new(0) }
    }

    /// Goes on after this epoch, counted from 1 as `SupervisedTraining::checkpoint` has it.
    pub fn checkpoint(self, epoch: usize) -> Self {
        Self { epoch: AtomicU64::new(epoch as u64), ..self }
    }

    /// The step that the next epoch begins with.
    pub(super) fn next_step(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed) * self.steps
    }

    pub(super) fn source(&self) -> &T {
        &self.source
    }

    fn on(&self, device: &B::Device) -> Self {
        Self {
            source: self.source.clone(),
            device: device.clone(),
            epoch: AtomicU64::new(self.epoch.load(Ordering::Relaxed)),
            ..*self
        }
    }

    fn tasks(&self) -> u64 {
        self.steps * self.meta_batch
    }
}

impl<B, T> DataLoader<B, Tasks<B, T::Kind>> for TrainingTasks<B, T>
where
    B: Backend,
    T: TaskSource + Send + Sync + 'static,
{
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<Tasks<B, T::Kind>> + 'a> {
        let first = self.epoch.fetch_add(1, Ordering::Relaxed) * self.tasks();
        Box::new(Batches::<B, T> {
            source: &self.source,
            device: &self.device,
            all: first..first + self.tasks(),
            next: first,
            batch_size: self.meta_batch,
        })
    }

    fn num_items(&self) -> usize {
        self.tasks() as usize
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, Tasks<B, T::Kind>>> {
        Arc::new(self.on(device))
    }

    /// # Panics
    /// On anything but the whole: `burn-train` slices to share tasks among devices, and adds up
    /// what their gradients should be averaged to.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, Tasks<B, T::Kind>>> {
        let all = self.num_items();
        assert!(
            (start, end) == (0, all),
            "tasks {start} to {end} of {all}: an epoch is not divided among devices, whose \
             gradients burn-train would add up instead of averaging them"
        );
        self.to_device(&self.device)
    }
}

/// The first tasks of a source: in every validation the same.
pub struct ValidationTasks<B: Backend, T> {
    source: Arc<T>,
    tasks: Range<u64>,
    device: B::Device,
}

impl<B: Backend, T> ValidationTasks<B, T> {
    /// The first `tasks` of `source`, in batches of [`test_batch_size`](TaskSource::test_batch_size), as an
    /// [`Evaluator`](crate::train::Evaluator) takes them.
    ///
    /// # Panics
    /// Without a task.
    pub fn new(source: T, tasks: usize, device: &B::Device) -> Self {
        assert!(tasks > 0, "a validation needs at least one task");
        Self { source: Arc::new(source), tasks: 0..tasks as u64, device: device.clone() }
    }
}

impl<B, T> DataLoader<B, Tasks<B, T::Kind>> for ValidationTasks<B, T>
where
    B: Backend,
    T: TaskSource + Send + Sync + 'static,
{
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<Tasks<B, T::Kind>> + 'a> {
        Box::new(Batches::<B, T> {
            source: &self.source,
            device: &self.device,
            all: self.tasks.clone(),
            next: self.tasks.start,
            batch_size: self.source.test_batch_size() as u64,
        })
    }

    fn num_items(&self) -> usize {
        (self.tasks.end - self.tasks.start) as usize
    }

    fn to_device(&self, device: &B::Device) -> Arc<dyn DataLoader<B, Tasks<B, T::Kind>>> {
        let (source, tasks) = (self.source.clone(), self.tasks.clone());
        Arc::new(Self { source, tasks, device: device.clone() })
    }

    /// # Panics
    /// When the tasks are not among those here.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B, Tasks<B, T::Kind>>> {
        let all = self.num_items();
        assert!(start <= end && end <= all, "tasks {start} to {end} of {all}");
        let first = self.tasks.start;
        let tasks = first + start as u64..first + end as u64;
        Arc::new(Self { source: self.source.clone(), tasks, device: self.device.clone() })
    }
}

/// Tasks of one epoch, so many together.
struct Batches<'a, B: Backend, T> {
    source: &'a T,
    device: &'a B::Device,
    all: Range<u64>,
    next: u64,
    batch_size: u64,
}

impl<B: Backend, T: TaskSource> Iterator for Batches<'_, B, T> {
    type Item = Tasks<B, T::Kind>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.next;
        if first >= self.all.end {
            return None;
        }
        self.next = (first + self.batch_size).min(self.all.end);
        let batch = self.source.tasks::<B>(first..self.next, self.device);
        Some(Tasks { step: first / self.batch_size, batch })
    }
}

impl<B: Backend, T: TaskSource> DataLoaderIterator<Tasks<B, T::Kind>> for Batches<'_, B, T> {
    fn progress(&self) -> Progress {
        let tasks = |end| (end - self.all.start) as usize;
        Progress { items_processed: tasks(self.next), items_total: tasks(self.all.end) }
    }
}
