use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use mpi::collective::SystemOperation;
use mpi::datatype::PartitionMut;
use mpi::environment::{Universe, initialize_with_threading, is_finalized};
use mpi::traits::{Communicator as _, CommunicatorCollectives, Root};
use mpi::{Count, Threading, topology};

use super::{Communicator, ParallelError, launched};

/// Bytes of a message; MPI counts elements in 32 bits.
const BUCKET: usize = 32 << 20;

/// The processes that `mpirun` or `srun` started together.
///
/// A process has one at most. Dropping it waits for the other processes and ends MPI; drop it in the
/// thread that made it. Where a panic drops it, all processes end, since the others would wait for
/// ever. MPI itself ends all of them if one is lost.
pub struct MpiCommunicator {
    /// Locked for each call: MPI was asked for threads that take turns.
    universe: Mutex<Universe>,
    rank: usize,
    size: usize,
    bucket: usize,
}

impl MpiCommunicator {
    /// All processes that were started together.
    ///
    /// # Errors
    /// [`ParallelError::AlreadyInitialized`], [`ParallelError::Finalized`],
    /// [`ParallelError::ThreadLevel`], and [`ParallelError::OtherMpi`] where the MPI library is not the
    /// one that started the processes.
    pub fn world() -> Result<Self, ParallelError> {
        Self::with_bucket(BUCKET)
    }

    /// [`world`](Self::world) with at most `bucket` bytes a message, in place of 32 MiB. It must be
    /// the same in every process.
    ///
    /// # Errors
    /// The errors of [`world`](Self::world).
    ///
    /// # Panics
    /// If `bucket` has no room for one number, or is more than 1 GiB.
    pub fn with_bucket(bucket: usize) -> Result<Self, ParallelError> {
        assert!((4..=1 << 30).contains(&bucket), "a bucket of {bucket} bytes");
        if is_finalized() {
            return Err(ParallelError::Finalized);
        }
        let (universe, actual) = initialize_with_threading(Threading::Serialized)
            .ok_or(ParallelError::AlreadyInitialized)?;
        if actual < Threading::Serialized {
            let actual = format!("{actual:?}").to_lowercase();
            return Err(ParallelError::ThreadLevel { actual, expected: "serialized" });
        }
        let world = universe.world();
        let (rank, size) = (world.rank() as usize, world.size() as usize);
        if let Some(launch) = launched().filter(|launch| launch.size != size) {
            let (by, launched) = (launch.by, launch.size);
            return Err(ParallelError::OtherMpi { by, launched, actual: size });
        }
        Ok(Self { universe: Mutex::new(universe), rank, size, bucket })
    }

    fn universe(&self) -> MutexGuard<'_, Universe> {
        // What another thread left undone in MPI is MPI's to notice.
        self.universe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Communicator for MpiCommunicator {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_reduce(&self, values: &mut [f32]) -> Result<(), ParallelError> {
        let universe = self.universe();
        let world = universe.world();
        for bucket in values.chunks_mut(self.bucket / size_of::<f32>()) {
            let own = bucket.to_vec();
            world.all_reduce_into(&own[..], bucket, SystemOperation::sum());
        }
        Ok(())
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ParallelError> {
        let universe = self.universe();
        let world = universe.world();
        let mut lengths = vec![0_u64; self.size];
        world.all_gather_into(&(bytes.len() as u64), &mut lengths[..]);
        let longest = lengths.iter().copied().max().unwrap_or(0) as usize;
        let part = (self.bucket / self.size).max(1);
        let mut gathered = vec![Vec::new(); self.size];
        for start in (0..longest).step_by(part) {
            let width = part.min(longest - start);
            let inside = |length: usize| start.min(length)..(start + width).min(length);
            let count = |length: &u64| inside(*length as usize).len() as Count;
            let counts: Vec<_> = lengths.iter().map(count).collect();
            let places: Vec<_> = (0..self.size).map(|rank| (rank * width) as Count).collect();
            let mut received = vec![0; self.size * width];
            let mut partition = PartitionMut::new(&mut received[..], &counts[..], &places[..]);
            world.all_gather_varcount_into(&bytes[inside(bytes.len())], &mut partition);
            let parts = received.chunks_exact(width).zip(counts);
            for (gathered, (part, count)) in gathered.iter_mut().zip(parts) {
                gathered.extend_from_slice(&part[..count as usize]);
            }
        }
        Ok(gathered)
    }

    fn broadcast(&self, bytes: &mut Vec<u8>) -> Result<(), ParallelError> {
        let universe = self.universe();
        let world = universe.world();
        let root = world.process_at_rank(0);
        let mut length = bytes.len() as u64;
        root.broadcast_into(&mut length);
        bytes.resize(length as usize, 0);
        for bucket in bytes.chunks_mut(self.bucket) {
            root.broadcast_into(bucket);
        }
        Ok(())
    }

    fn barrier(&self) -> Result<(), ParallelError> {
        self.universe().world().barrier();
        Ok(())
    }

    fn abort(&self, code: i32) -> ! {
        // Not through the lock: another thread may hold it while it waits for a process that is gone.
        topology::SimpleCommunicator::world().abort(code)
    }
}

impl Drop for MpiCommunicator {
    fn drop(&mut self) {
        if thread::panicking() && self.size > 1 {
            self.abort(101);
        }
    }
}
