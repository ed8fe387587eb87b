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

/// An image as an episode shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) class: usize,
    pub(crate) example: usize,
    pub(crate) turn: QuarterTurn,
}

/// What an example of an episode is there for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Support,
    Query,
}

impl Episode {
    /// The images of the support, then those of the queries.
    pub(crate) fn all_shown(&self) -> impl Iterator<Item = Shown> {
        [Part::Support, Part::Query].into_iter().flat_map(|part| self.shown(part))
    }

    /// The images of a part, class by class.
    pub(crate) fn shown(&self, part: Part) -> impl Iterator<Item = Shown> {
        self.classes.iter().flat_map(move |draw| {
            let examples = match part {
                Part::Support => &draw.support,
                Part::Query => &draw.query,
            };
            let ClassDraw { class, turn, .. } = *draw;
            examples.iter().map(move |&example| Shown { class, example, turn })
        })
    }
}
