//! Training on several replicas: devices of one process, or processes that MPI started.
//!
//! The tasks of a step are cut into micro-batches, the *leaves*. Each replica takes a [contiguous
//! range](shard) of them, and adds up the nodes of a [fixed binary tree](TreeSum) that lie in it; the
//! nodes of all replicas complete the tree. The same leaves have the same sum, bit for bit, whatever
//! the number of replicas, see [`reduce`].

mod agree;
mod communicator;
mod error;
mod flat;
mod launch;
#[cfg(feature = "mpi")]
mod mpi;
mod reduce;
mod shard;
#[cfg(test)]
mod thread_communicator;
mod tree;
mod wire;

pub use agree::agree;
pub(crate) use communicator::solo;
pub use communicator::{Communicator, Solo, gather_numbers, world};
pub use error::ParallelError;
pub use flat::FlatGradients;
pub use launch::{Launch, launched};
#[cfg(feature = "mpi")]
pub use mpi::MpiCommunicator;
pub use reduce::{Contribution, Reduction, reduce};
pub use shard::shard;
pub use tree::{Node, Sum, TreeSum};
