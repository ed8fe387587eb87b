use super::{EpisodeError, Protocol};
use crate::data::{ClassDataset, Features, QuarterTurn};
use crate::random::Stream;

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

    /// The labels of a part, class by class.
    pub(crate) fn labels(&self, part: Part) -> impl Iterator<Item = usize> {
        self.classes.iter().enumerate().flat_map(move |(label, draw)| {
            let examples = match part {
                Part::Support => &draw.support,
                Part::Query => &draw.query,
            };
            std::iter::repeat_n(label, examples.len())
        })
    }
}

/// What an episode is drawn from, as far as the draw has to know.
pub(super) trait Classes {
    fn count(&self) -> usize;
    fn name(&self, class: usize) -> String;
    fn examples(&self, class: usize) -> usize;
    /// Whether each class of an episode is shown in a turn that is drawn.
    fn turned(&self) -> bool;
}

impl Classes for dyn ClassDataset + '_ {
    fn count(&self) -> usize {
        self.classes()
    }

    fn name(&self, class: usize) -> String {
        self.class_name(class)
    }

    fn examples(&self, class: usize) -> usize {
        ClassDataset::examples(self, class)
    }

    fn turned(&self) -> bool {
        self.draws_turns()
    }
}

impl Classes for Features {
    fn count(&self) -> usize {
        self.classes()
    }

    fn name(&self, class: usize) -> String {
        self.class_name(class).to_owned()
    }

    fn examples(&self, class: usize) -> usize {
        self.examples(class)
    }

    fn turned(&self) -> bool {
        false
    }
}

/// Whether episodes of `protocol` can be drawn where one may show `needed` examples of a class.
pub(super) fn check<C: Classes + ?Sized>(
    from: &C,
    protocol: Protocol,
    needed: usize,
) -> Result<(), EpisodeError> {
    let Protocol { ways, shots, queries } = protocol;
    if ways == 0 || shots == 0 || queries == 0 {
        return Err(EpisodeError::Zero(protocol));
    }
    if from.count() < ways {
        return Err(EpisodeError::NotEnoughClasses { ways, found: from.count() });
    }
    match (0..from.count()).find(|&class| from.examples(class) < needed) {
        Some(class) => Err(EpisodeError::NotEnoughExamples {
            protocol,
            class: from.name(class),
            needed,
            found: from.examples(class),
        }),
        None => Ok(()),
    }
}

/// Draws classes, and of each the support and as many queries as `queries` has in its place.
pub(super) fn draw<C: Classes + ?Sized>(
    from: &C,
    shots: usize,
    queries: &[usize],
    random: &mut Stream,
) -> Episode {
    let classes = random.sample(from.count(), queries.len());
    let classes = classes.into_iter().zip(queries).map(|(class, queries)| {
        let turn = match from.turned() {
            true => QuarterTurn::ALL[random.below(4)],
            false => QuarterTurn::R0,
        };
        let mut support = random.sample(from.examples(class), shots + queries);
        let query = support.split_off(shots);
        ClassDraw { class, turn, support, query }
    });
    Episode { classes: classes.collect() }
}
