use super::Protocol;

/// A protocol that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EpisodeError {
    /// A size of zero.
    #[error("an episode needs at least one way, shot and query, found {0}")]
    Zero(Protocol),
    /// A regression task without an example to learn from or to be judged by, or with too many.
    #[error("a regression task has from 1 to 2^24 shots and queries, not {shots} and {queries}")]
    Samples {
        /// Examples to learn from.
        shots: usize,
        /// Examples to be judged by.
        queries: usize,
    },
    /// Patterns too short to be degraded, or too long to be drawn.
    #[error("a pattern has from 2 to 2^24 values, not {found}")]
    PatternLength {
        /// Values wanted.
        found: usize,
    },
    /// Fewer classes than ways.
    #[error("a {ways}-way episode needs {ways} classes, the split has {found}")]
    NotEnoughClasses {
        /// Ways wanted.
        ways: usize,
        /// Classes there are.
        found: usize,
    },
    /// A class too small for the shots and queries.
    #[error("a {protocol} episode needs {needed} examples a class, class {class} has {found}")]
    NotEnoughExamples {
        /// The protocol wanted.
        protocol: Protocol,
        /// Name of the first class that is too small.
        class: String,
        /// Examples needed.
        needed: usize,
        /// Examples there are.
        found: usize,
    },
}
