//! Operands that do not fit each other.

/// Prototypes, queries and labels that do not belong together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetricError {
    /// Other tasks or features than the queries have, or no prototype.
    #[error(
        "queries {queries:?} need prototypes [{}, at least one, {}], found {found:?}",
        queries[0],
        queries[2]
    )]
    Prototypes {
        /// Shape of the queries.
        queries: [usize; 3],
        /// Shape of the prototypes.
        found: [usize; 3],
    },
    /// Not one label for each embedding.
    #[error("embeddings {embeddings:?} need labels {:?}, found {found:?}", &embeddings[..2])]
    Labels {
        /// Shape of the embeddings.
        embeddings: [usize; 3],
        /// Shape of the labels.
        found: [usize; 2],
    },
    /// A label without a class.
    #[error("a label is {found}, but there are {ways} classes")]
    Label {
        /// The label.
        found: i64,
        /// Number of classes.
        ways: usize,
    },
    /// Not one matrix for each task, or for each prototype.
    #[error(
        "prototypes {prototypes:?} need a precision [{}, 1 or {}, {2}, {2}], found {found:?}",
        prototypes[0],
        prototypes[1],
        prototypes[2]
    )]
    Precision {
        /// Shape of the prototypes.
        prototypes: [usize; 3],
        /// Shape of the precision.
        found: [usize; 4],
    },
}

impl MetricError {
    pub(crate) fn check_prototypes(queries: [usize; 3], found: [usize; 3]) -> Result<(), Self> {
        let [tasks, ways, features] = found;
        if [tasks, features] != [queries[0], queries[2]] || ways == 0 {
            return Err(Self::Prototypes { queries, found });
        }
        Ok(())
    }

    pub(crate) fn check_labels(embeddings: [usize; 3], found: [usize; 2]) -> Result<(), Self> {
        if found[..] != embeddings[..2] {
            return Err(Self::Labels { embeddings, found });
        }
        Ok(())
    }
}
