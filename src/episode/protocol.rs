use std::fmt;
use std::str::FromStr;

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

/// Most ways, shots and queries that are read from a text: what is larger is a slip.
const MOST: usize = 10_000;

impl FromStr for Protocol {
    type Err = String;

    /// `5w1s15q`, or `5w1s` with 15 queries.
    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (ways, rest) = text.split_once('w')?;
            let (shots, rest) = rest.split_once('s')?;
            let protocol = Self::new(ways.parse().ok()?, shots.parse().ok()?);
            match rest {
                "" => Some(protocol),
                rest => Some(protocol.with_queries(rest.strip_suffix('q')?.parse().ok()?)),
            }
        };
        let protocol = read().filter(|Self { ways, shots, queries }| {
            [ways, shots, queries].into_iter().all(|number| (1..=MOST).contains(number))
        });
        protocol.ok_or_else(|| {
            format!(
                "{text:?} is no task; write WAYSwSHOTSsQUERIESq with numbers from 1 to {MOST}, as \
                 5w1s15q"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_read_from_its_short_form() {
        assert_eq!("5w1s15q".parse(), Ok(Protocol::new(5, 1)));
        assert_eq!("20w5s".parse(), Ok(Protocol::new(20, 5)));
        assert_eq!("60w1s5q".parse(), Ok(Protocol::new(60, 1).with_queries(5)));
        for wrong in
            ["", "5w", "5w1", "w1s", "0w1s", "5w0s1q", "5w1s0q", "5w1s1", "-5w1s", "99999w1s"]
        {
            assert!(wrong.parse::<Protocol>().is_err(), "{wrong}");
        }
    }
}
