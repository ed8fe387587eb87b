//! Training on several replicas: devices of one process, or processes that MPI started.
//!
//! The tasks of a step are cut into micro-batches, the *leaves*, best by the settings and not by
//! the number of replicas. Each replica takes a [contiguous range](shard) of them, and their gradients
//! are added in a [fixed binary tree](TreeSum) over the leaves. A replica adds up the nodes of the tree
//! that lie in its range; the few nodes of all replicas complete the same tree. The sum is the same
//! bit for bit whatever the number of replicas as long as the leaves are the same, see [`reduce`].

mod agree;
mod communicator;
mod contribution;
mod error;
mod flat;
mod gradients;
mod launch;
#[cfg(feature = "mpi")]
mod mpi;
mod numbers;
mod reduce;
mod shard;
#[cfg(test)]
mod thread_communicator;
mod tree;
mod wire;

pub use agree::agree;
pub(crate) use communicator::solo;
pub use communicator::{Communicator, Solo, world};
pub use contribution::Contribution;
pub use error::ParallelError;
pub use flat::FlatGradients;
pub use launch::{Launch, launched};
#[cfg(feature = "mpi")]
pub use mpi::MpiCommunicator;
pub use numbers::gather_numbers;
pub use reduce::{Reduction, reduce};
pub use shard::shard;
pub use tree::{Node, Sum, TreeSum};
