use thiserror::Error;

/// Errors between replicas.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ParallelError {
    /// Sums that do not fit together.
    #[error(
        "the sum of {length} micro-batches from {start} on does not go on at {next} \
         in a tree over {leaves}"
    )]
    Node { start: usize, length: usize, next: usize, leaves: usize },
    /// Micro-batches that no replica has added up.
    #[error("the replicas added up {actual} of {expected} micro-batches")]
    Incomplete { actual: usize, expected: usize },
    /// A tensor that is not made of 32-bit floats: number `index` as the module is visited.
    #[error("replicas exchange f32 tensors, and the gradient of tensor {index} is {dtype}")]
    DType { index: usize, dtype: String },
    /// Numbers of another module.
    #[error("{what}: {actual} where this module has {expected}")]
    Layout { what: &'static str, actual: usize, expected: usize },
    /// A message that cannot be read.
    #[error("the message of process {rank} cannot be read: {reason}")]
    Message { rank: usize, reason: String },
    /// Processes that would not do the same: `name` is the first setting that differs, and `rank`
    /// the first process in which it does.
    #[error(
        "the processes differ in the settings: {name} is {first} in process 0 and {other} in \
         process {rank}"
    )]
    Disagreement { name: String, first: String, other: String, rank: usize },
    /// One of several processes, in a program that cannot talk to the others.
    #[error(
        "this is process {rank} of {size} that {by} started, and this program was built without MPI: \
         build it with --features mpi, or start it by itself"
    )]
    NotCompiled { rank: usize, size: usize, by: &'static str },
    /// One of several processes, with a trainer that has no communicator.
    #[error(
        "this is process {rank} of {size} that {by} started, and each would train by itself: give \
         the trainer parallel::world() to share its tasks, or Solo if that is meant"
    )]
    NotJoined { rank: usize, size: usize, by: &'static str },
    /// MPI runs already.
    #[error("MPI is in use in this process already: make one MpiCommunicator and share it")]
    AlreadyInitialized,
    /// MPI cannot be started twice.
    #[error("MPI was ended in this process, and cannot be started again")]
    Finalized,
    /// An MPI library that wants one thread alone.
    #[error("this MPI library offers threads at level {actual}, and {expected} is needed")]
    ThreadLevel { actual: String, expected: &'static str },
    /// MPI counts other processes than the one that started them.
    #[error(
        "{by} started {launched} processes, and MPI sees {actual}: the program was built against \
         another MPI library than the one that started it"
    )]
    OtherMpi { by: &'static str, launched: usize, actual: usize },
}
