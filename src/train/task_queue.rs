//! Tasks of the next steps, of which a thread makes the host's share ahead.

use std::cell::RefCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

use crate::data::DataError;
use crate::episode::{PreparedTasks, Preparer};
use crate::hardware::panics::message;

/// Number of batches that wait for their step, besides the one that the thread is at.
const WAITING: usize = 2;

/// Queue of prepared tasks, in the order of steps. The thread ends with the queue.
pub(super) struct TaskQueue {
    preparer: Preparer,
    state: RefCell<State>,
}

struct State {
    /// `None` only while the queue is dropped.
    receiver: Option<Receiver<Prepared>>,
    /// Batch that is not due yet.
    next: Option<Prepared>,
    thread: Option<JoinHandle<()>>,
}

struct Prepared {
    indices: Range<u64>,
    tasks: Result<PreparedTasks, Unprepared>,
}

/// Reason for which the host's share of tasks was not made.
#[derive(Debug)]
pub(super) enum Unprepared {
    /// Data that cannot be read.
    Data(DataError),
    /// The text of a panic.
    Panic(String),
}

impl TaskQueue {
    /// Starts the thread, which prepares the tasks of `order`.
    ///
    /// # Errors
    /// When the system has no thread.
    pub(super) fn start(
        preparer: Preparer,
        order: impl Iterator<Item = Range<u64>> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        let prepare = preparer.clone();
        let work = move || {
            for indices in order {
                let tasks = prepared(&prepare, &indices);
                let failed = tasks.is_err();
                if sender.send(Prepared { indices, tasks }).is_err() || failed {
                    return;
                }
            }
        };
        let thread = Builder::new().name("fewshot-tasks".to_owned()).spawn(work)?;
        let state = State { receiver: Some(receiver), next: None, thread: Some(thread) };
        Ok(Self { preparer, state: RefCell::new(state) })
    }

    /// The host's share of these tasks. Tasks that are not next in the queue are prepared at once: after a step that was
    /// skipped, those of that step.
    ///
    /// # Errors
    /// When data cannot be read, or a panic ended their preparation.
    pub(super) fn take(&self, indices: Range<u64>) -> Result<PreparedTasks, Unprepared> {
        let mut state = self.state.borrow_mut();
        let next = state.next.take();
        let next = next.or_else(|| state.receiver.as_ref().and_then(|from| from.recv().ok()));
        match next {
            Some(next) if next.indices == indices => next.tasks,
            other => {
                state.next = other;
                prepared(&self.preparer, &indices)
            }
        }
    }
}

impl Drop for TaskQueue {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        // A thread that waits for room gets an error, and ends.
        state.receiver = None;
        if let Some(thread) = state.thread.take() {
            let _ = thread.join();
        }
    }
}

fn prepared(preparer: &Preparer, indices: &Range<u64>) -> Result<PreparedTasks, Unprepared> {
    let work = AssertUnwindSafe(|| preparer(indices.clone()));
    let made = catch_unwind(work).map_err(|panic| Unprepared::Panic(message(&*panic)))?;
    made.map_err(Unprepared::Data)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::data::{Glyphs, GlyphsConfig, Preset};
    use crate::episode::{Protocol, TaskSource};

    fn preparer() -> Preparer {
        let config = GlyphsConfig { train_alphabets: 1, size: 12, ..GlyphsConfig::new(0) };
        let images = Glyphs::generate(&config).train;
        let sampler = images.sampler(Protocol::new(3, 1).with_queries(2), 1).unwrap();
        assert!(sampler.preparer().is_none());
        let augmentation = Preset::Standard.for_image(sampler.dataset().image_shape());
        sampler.with_augmentation(augmentation).unwrap().preparer().unwrap()
    }

    /// The preparer, and the number of calls of it.
    fn counted() -> (Preparer, Arc<AtomicU64>) {
        let (inner, calls) = (preparer(), Arc::new(AtomicU64::new(0)));
        let count = calls.clone();
        let counted = move |indices| {
            count.fetch_add(1, Ordering::SeqCst);
            inner(indices)
        };
        (Arc::new(counted), calls)
    }

    fn order(steps: u64) -> impl Iterator<Item = Range<u64>> + Send {
        (0..steps).map(|step| 2 * step..2 * step + 2)
    }

    fn same(one: &PreparedTasks, other: &PreparedTasks) -> bool {
        one.bytes() == other.bytes()
    }

    #[test]
    fn tasks_come_in_their_order_and_are_those_without_a_queue() {
        let preparer = preparer();
        let queue = TaskQueue::start(preparer.clone(), order(5)).unwrap();
        for indices in order(5) {
            assert!(same(&queue.take(indices.clone()).unwrap(), &preparer(indices).unwrap()));
        }
        // Beyond the end nothing is prepared ahead.
        assert!(same(&queue.take(10..12).unwrap(), &preparer(10..12).unwrap()));
    }

    #[test]
    fn a_step_that_is_made_again_keeps_its_tasks_and_the_queue() {
        let (preparer, calls) = counted();
        let queue = TaskQueue::start(preparer.clone(), order(3)).unwrap();
        for indices in [0..2, 0..2, 0..2, 2..4, 4..6] {
            assert!(same(
                &queue.take(indices.clone()).unwrap(),
                &self::preparer()(indices).unwrap()
            ));
        }
        assert_eq!(calls.load(Ordering::SeqCst), 5);
    }

    #[test]
    fn the_thread_waits_when_the_queue_is_full_and_ends_with_it() {
        let (preparer, calls) = counted();
        let queue = TaskQueue::start(preparer, order(u64::MAX)).unwrap();
        queue.take(0..2).unwrap();
        let most = 1 + WAITING as u64 + 1;
        while calls.load(Ordering::SeqCst) < most {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(calls.load(Ordering::SeqCst), most);
        drop(queue);
        assert_eq!(calls.load(Ordering::SeqCst), most);
    }

    #[test]
    fn a_panic_is_the_error_of_its_step() {
        let inner = preparer();
        let failing: Preparer = Arc::new(move |indices: Range<u64>| match indices.start {
            4 => panic!("the picture {} is gone", indices.start),
            _ => inner(indices),
        });
        let queue = TaskQueue::start(failing, order(9)).unwrap();
        assert!(queue.take(0..2).is_ok() && queue.take(2..4).is_ok());
        match queue.take(4..6) {
            Err(Unprepared::Panic(text)) => assert_eq!(text, "the picture 4 is gone"),
            other => panic!("{other:?}"),
        }
    }
}
