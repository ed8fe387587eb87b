//! A model that requests ask: a queue, and a thread that has the model's network.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use fewshot::adapted::Thumbnail;
use fewshot::data::Preparation;
use fewshot::files::Lock;
use fewshot::hardware::{Bytes, release};
use tokio::sync::oneshot;

use super::gallery::{Gallery, GalleryError, Served};
use crate::prelude::*;

/// Requests that wait for a network, at most; others are refused.
const WAITING: usize = 256;

/// Pictures that are embedded together, at most.
const BATCH: usize = 32;

/// Stack of a model's thread, in bytes: as large as that of a main thread.
const STACK: usize = 8 << 20;

/// A function of the model.
type Run = Box<dyn FnOnce(&mut dyn Served) + Send>;

/// A function of the model and the embedding of a picture.
type RunEmbedded = Box<dyn FnOnce(&mut dyn Served, Vec<f32>) + Send>;

/// The part of a request that needs the model.
pub(super) enum Task {
    Run(Run),
    /// With a prepared picture.
    Embed {
        image: Vec<f32>,
        then: RunEmbedded,
    },
}

/// Failure of a request for which the model did nothing.
pub(super) enum Unanswered {
    /// Too many requests wait.
    Busy,
    /// The thread of the model has ended.
    Ended,
    Refused(GalleryError),
}

/// A model that requests ask.
///
/// Dropping it ends its thread, then its lock.
pub(super) struct Model {
    /// None where the model takes no pictures.
    pub(super) preparation: Option<Preparation>,
    /// Memory of its parameters, embeddings and small pictures when it was opened.
    pub(super) bytes: Bytes,
    /// Small pictures of examples by number: those of the file, and those of examples that were added since.
    thumbnails: Mutex<HashMap<usize, Thumbnail>>,
    tasks: SyncSender<Task>,
    worker: Worker,
    _lock: Option<Lock>,
}

/// The thread of a model that has one of its own. It ends with the queue.
#[derive(Default)]
struct Worker(Option<JoinHandle<()>>);

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

impl Model {
    /// A model with the tasks that [`answer`] is to carry out.
    pub(super) fn of<B: Backend>(
        gallery: &Gallery<B>,
        lock: Option<Lock>,
    ) -> (Self, Receiver<Task>) {
        let (tasks, receiver) = sync_channel(WAITING);
        let model = Self {
            preparation: gallery.preparation(),
            bytes: gallery.bytes(),
            thumbnails: Mutex::new(gallery.thumbnails()),
            tasks,
            worker: Worker::default(),
            _lock: lock,
        };
        (model, receiver)
    }

    /// A model with a thread of its own, in which `open` makes it.
    pub(super) fn start<B: Backend>(
        device: B::Device,
        lock: Option<Lock>,
        open: impl FnOnce(&B::Device) -> Result<Gallery<B>> + Send + 'static,
    ) -> Result<Self> {
        let (sender, opened) = oneshot::channel();
        let work = move || {
            match open(&device) {
                Err(error) => drop(sender.send(Err(error))),
                Ok(mut gallery) => {
                    let (model, tasks) = Self::of(&gallery, lock);
                    // A model that nobody takes has no tasks.
                    drop(sender.send(Ok(model)));
                    answer(&mut gallery, &tasks);
                }
            }
            release::<B>(&device);
        };
        let thread = thread::Builder::new().name("model".to_owned()).stack_size(STACK).spawn(work);
        let thread = thread.map_err(|error| failed!("no thread for a model: {error}"))?;
        let worker = Worker(Some(thread));
        let opened = opened.blocking_recv();
        let model = opened.map_err(|_| failed!("the thread of the model has panicked"))??;
        Ok(Self { worker, ..model })
    }

    /// `true` once its own thread has panicked.
    pub(super) fn has_ended(&self) -> bool {
        self.worker.0.as_ref().is_some_and(JoinHandle::is_finished)
    }

    pub(super) fn thumbnails(&self) -> MutexGuard<'_, HashMap<usize, Thumbnail>> {
        self.thumbnails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut dyn Served) -> Result<T, GalleryError> + Send + 'static,
    ) -> Result<T, Unanswered> {
        // The client may have left before the reply.
        let task = |reply: oneshot::Sender<_>| {
            Task::Run(Box::new(move |served| drop(reply.send(run(served)))))
        };
        self.outcome(task).await
    }

    pub(super) async fn embed<T: Send + 'static>(
        &self,
        image: Vec<f32>,
        then: impl FnOnce(&mut dyn Served, Vec<f32>) -> Result<T, GalleryError> + Send + 'static,
    ) -> Result<T, Unanswered> {
        let task = |reply: oneshot::Sender<_>| {
            let then = Box::new(move |served: &mut dyn Served, embedding| {
                drop(reply.send(then(served, embedding)));
            });
            Task::Embed { image, then }
        };
        self.outcome(task).await
    }

    /// The result of a task, when its turn has come.
    async fn outcome<T>(
        &self,
        task: impl FnOnce(oneshot::Sender<Result<T, GalleryError>>) -> Task,
    ) -> Result<T, Unanswered> {
        let (reply, result) = oneshot::channel();
        self.tasks.try_send(task(reply)).map_err(|error| match error {
            TrySendError::Full(_) => Unanswered::Busy,
            TrySendError::Disconnected(_) => Unanswered::Ended,
        })?;
        result.await.map_err(|_| Unanswered::Ended)?.map_err(Unanswered::Refused)
    }
}

/// Carries tasks out in their order until nobody can send any more; pictures that wait are embedded together.
pub(super) fn answer(gallery: &mut dyn Served, tasks: &Receiver<Task>) {
    while let Ok(first) = tasks.recv() {
        let batch: Vec<_> = [first].into_iter().chain(tasks.try_iter().take(BATCH - 1)).collect();
        let images = batch.iter().filter_map(|task| match task {
            Task::Embed { image, .. } => Some(image.as_slice()),
            Task::Run(_) => None,
        });
        let mut embeddings = gallery.embed(&images.collect::<Vec<_>>()).into_iter();
        for task in batch {
            match task {
                Task::Embed { then, .. } => {
                    then(gallery, embeddings.next().expect("one of each picture"));
                }
                Task::Run(task) => task(gallery),
            }
        }
    }
}
