//! Processes that are threads, for tests.

use std::sync::{Barrier, Mutex};
use std::thread;

use super::{Communicator, ParallelError};

struct Room {
    /// What each of them says.
    said: Vec<Mutex<Vec<u8>>>,
    barrier: Barrier,
}

struct Member<'a> {
    rank: usize,
    room: &'a Room,
}

/// What `body` returns in each of `size` processes.
pub(super) fn together<T: Send>(
    size: usize,
    body: impl Fn(&dyn Communicator) -> T + Sync,
) -> Vec<T> {
    let said = (0..size).map(|_| Mutex::default()).collect();
    let room = &Room { said, barrier: Barrier::new(size) };
    let body = &body;
    thread::scope(|scope| {
        let start = |rank| scope.spawn(move || body(&Member { rank, room }));
        let threads = (0..size).map(start).collect::<Vec<_>>();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

impl Communicator for Member<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.room.said.len()
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
        *self.room.said[self.rank].lock().unwrap() = bytes.to_vec();
        self.barrier()?;
        let all = self.room.said.iter().map(|said| said.lock().unwrap().clone()).collect();
        self.barrier()?;
        Ok(all)
    }

    fn broadcast(&self, root: usize, bytes: &mut Vec<u8>) -> Result<(), ParallelError> {
        *bytes = self.all_gather(bytes)?.swap_remove(root);
        Ok(())
    }

    fn barrier(&self) -> Result<(), ParallelError> {
        self.room.barrier.wait();
        Ok(())
    }

    fn abort(&self, code: i32) -> ! {
        std::process::exit(code)
    }
}
