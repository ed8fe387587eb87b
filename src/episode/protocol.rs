use std::fmt;

use serde::{Deserialize, Serialize};

/// The size of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Protocol {
    /// Classes in an episode.
    pub ways: usize,
    /// Labelled examples of each class.
    pub shots: usize,
    /// Examples of each class to be classified.
    pub queries: usize,
}

impl Protocol {
    /// `ways`-way `shots`-shot with 15 queries a class, as most papers test.
    pub const fn new(ways: usize, shots: usize) -> Self {
        Self { ways, shots, queries: 15 }
    }

    /// With another number of queries a class.
    pub const fn with_queries(self, queries: usize) -> Self {
        Self { queries, ..self }
    }

    /// Examples of each class in an episode.
    pub const fn examples(&self) -> usize {
        self.shots + self.queries
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ways, shots, queries } = self;
        write!(f, "{ways}-way {shots}-shot {queries}-query")
    }
}
