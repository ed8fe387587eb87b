use thiserror::Error;

/// What can go wrong between replicas.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ParallelError {
    /// Sums that do not fit together.
    #[error(
        "the sum of {length} micro-batches from {start} on does not go on at {next} \
         in a tree over {leaves}"
    )]
    Node {
        /// First micro-batch of the node.
        start: usize,
        /// Its micro-batches.
        length: usize,
        /// The micro-batch that comes next.
        next: usize,
        /// Micro-batches of a step.
        leaves: usize,
    },
    /// Micro-batches that no replica has added up.
    #[error("the replicas added up {found} of {wanted} micro-batches")]
    Incomplete {
        /// Micro-batches that are there.
        found: usize,
        /// Micro-batches of a step.
        wanted: usize,
    },
    /// A tensor that is not made of 32-bit floats.
    #[error("replicas exchange f32 tensors, and the gradient of tensor {index} is {dtype}")]
    DType {
        /// Its number in the order in which the module is visited.
        index: usize,
        /// Its data type.
        dtype: String,
    },
    /// Numbers of another module.
    #[error("{what}: {found} where this module has {wanted}")]
    Layout {
        /// What was counted.
        what: &'static str,
        /// What was found.
        found: usize,
        /// What the module has.
        wanted: usize,
    },
    /// A message that cannot be read.
    #[error("the message of process {rank} cannot be read: {reason}")]
    Message {
        /// Who sent it.
        rank: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Processes that would not do the same.
    #[error(
        "the processes differ in the settings: {name} is {first} in process 0 and {other} in \
         process {rank}"
    )]
    Disagreement {
        /// Name of the first setting that differs.
        name: String,
        /// Its value in process 0.
        first: String,
        /// Its value in the first process that differs.
        other: String,
        /// That process.
        rank: usize,
    },
    /// One of several processes, in a program that cannot talk to the others.
    #[error(
        "this is process {rank} of {size} that {by} started, and this program was built without MPI: \
         build it with --features mpi, or start it by itself"
    )]
    NotCompiled {
        /// Its number.
        rank: usize,
        /// Processes that were started.
        size: usize,
        /// Who started them.
        by: &'static str,
    },
    /// One of several processes, with a trainer that was told nothing of the others.
    #[error(
        "this is process {rank} of {size} that {by} started, and each would train by itself: give \
         the trainer parallel::world() to share its tasks, or Solo if that is meant"
    )]
    NotJoined {
        /// Its number.
        rank: usize,
        /// Processes that were started.
        size: usize,
        /// Who started them.
        by: &'static str,
    },
    /// MPI runs already.
    #[error("MPI is in use in this process already: make one MpiCommunicator and share it")]
    AlreadyInitialized,
    /// MPI cannot be started twice.
    #[error("MPI was ended in this process, and cannot be started again")]
    Finalized,
    /// An MPI library that wants one thread alone.
    #[error("this MPI library offers threads at level {found}, and {wanted} is needed")]
    ThreadLevel {
        /// What it offers.
        found: String,
        /// What is needed.
        wanted: &'static str,
    },
    /// MPI counts other processes than the one that started them.
    #[error(
        "{by} started {launched} processes, and MPI sees {found}: the program was built against \
         another MPI library than the one that started it"
    )]
    OtherMpi {
        /// Who started them.
        by: &'static str,
        /// Processes started.
        launched: usize,
        /// Processes that MPI sees.
        found: usize,
    },
}
