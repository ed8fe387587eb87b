/// An inner loop that cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AdaptError {
    /// A mask that leaves nothing to adapt.
    #[error("the mask {mask} selects no parameter that can move; the module has {}", names.join(", "))]
    NothingMoves {
        /// The mask.
        mask: String,
        /// The parameters that are not frozen.
        names: Vec<String>,
    },
    /// A number that makes no sense.
    #[error("the inner loop's {name} must be {wanted}, found {found}")]
    Setting {
        /// Which number.
        name: &'static str,
        /// What it may be.
        wanted: &'static str,
        /// What it is.
        found: f64,
    },
    /// No inner step where the method learns by them.
    #[error("{method} needs at least one inner step")]
    NoSteps {
        /// Name of the method.
        method: &'static str,
    },
}
