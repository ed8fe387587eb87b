//! A [`Communicator`] among threads of one process, for tests.

use std::sync::{Barrier, Mutex};
use std::thread;

use super::{Communicator, ParallelError};

struct Mailboxes {
    /// The message of each rank.
    messages: Vec<Mutex<Vec<u8>>>,
    barrier: Barrier,
}

struct ThreadCommunicator<'a> {
    rank: usize,
    mailboxes: &'a Mailboxes,
}

/// Runs `body` once for each rank, on a thread each, and returns the results by rank.
pub(super) fn run_ranks<T: Send>(
    size: usize,
    body: impl Fn(&dyn Communicator) -> T + Sync,
) -> Vec<T> {
    let messages = (0..size).map(|_| Mutex::default()).collect();
    let mailboxes = &Mailboxes { messages, barrier: Barrier::new(size) };
    let body = &body;
    thread::scope(|scope| {
        let start = |rank| scope.spawn(move || body(&ThreadCommunicator { rank, mailboxes }));
        let threads = (0..size).map(start).collect::<Vec<_>>();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

impl Communicator for ThreadCommunicator<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.mailboxes.messages.len()
    }

    fn all_reduce(&self, values: &mut [f32]) -> Result<(), ParallelError> {
        let all = self.all_gather(&super::wire::bytes_of(values))?;
        values.fill(0.0);
        for bytes in all {
            let theirs = super::wire::floats_of(&bytes);
            assert_eq!(theirs.len(), values.len());
            values.iter_mut().zip(theirs).for_each(|(sum, value)| *sum += value);
        }
        Ok(())
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ParallelError> {
        *self.mailboxes.messages[self.rank].lock().unwrap() = bytes.to_vec();
        self.barrier()?;
        let all =
            self.mailboxes.messages.iter().map(|message| message.lock().unwrap().clone()).collect();
        self.barrier()?;
        Ok(all)
    }

    fn barrier(&self) -> Result<(), ParallelError> {
        self.mailboxes.barrier.wait();
        Ok(())
    }

    fn abort(&self, code: i32) -> ! {
        std::process::exit(code)
    }
}
