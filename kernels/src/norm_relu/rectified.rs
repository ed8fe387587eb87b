//! The step after a normalisation.

/// A ReLU after a normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rectified {
    /// True if the largest of every 2x2 window is taken, and not every pixel.
    pub pool: bool,
}
