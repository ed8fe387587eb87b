use crate::data::QuarterTurn;

/// Which examples an episode is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Episode {
    /// One draw a way; the position is the label.
    pub classes: Vec<ClassDraw>,
}

/// The examples of one class in an episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassDraw {
    /// Index of the class in its dataset.
    pub class: usize,
    /// The turn in which the whole class is shown.
    pub turn: QuarterTurn,
    /// Indices of the labelled examples.
    pub support: Vec<usize>,
    /// Indices of the examples to be classified, none of them in `support`.
    pub query: Vec<usize>,
}
