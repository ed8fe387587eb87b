use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use super::Lease;

/// How a load ended: with the model, or with what stopped it.
type Outcome<V> = Result<Lease<V>, String>;

/// A model on its way into the pool. One call loads it, others wait for that.
pub(super) struct InFlightLoad<V> {
    loader: ThreadId,
    outcome: Mutex<Option<Outcome<V>>>,
    landed: Condvar,
}

impl<V> InFlightLoad<V> {
    /// A load that this thread finishes.
    pub(super) fn new() -> Self {
        let loader = thread::current().id();
        Self { loader, outcome: Mutex::new(None), landed: Condvar::new() }
    }

    /// Whether this thread is the one that lands it, and would wait for itself.
    pub(super) fn is_own(&self) -> bool {
        self.loader == thread::current().id()
    }

    pub(super) fn finish(&self, outcome: Outcome<V>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.landed.notify_all();
    }

    pub(super) fn wait(&self) -> Outcome<V> {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            outcome = self.landed.wait(outcome).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
