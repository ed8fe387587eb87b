use super::class_set::ClassSet;
use super::{EpisodeError, Protocol};
use crate::data::QuarterTurn;
use crate::random::Stream;

/// Examples of an episode, by their class.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ImageRef {
    pub(crate) class: usize,
    pub(crate) example: usize,
    pub(crate) turn: QuarterTurn,
}

/// Purpose of an example in an episode.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Support,
    Query,
}

impl ClassDraw {
    fn examples(&self, part: Part) -> &[usize] {
        match part {
            Part::Support => &self.support,
            Part::Query => &self.query,
        }
    }
}

impl Episode {
    /// The images of the support, then those of the queries.
    pub(crate) fn all_images(&self) -> impl Iterator<Item = ImageRef> {
        [Part::Support, Part::Query].into_iter().flat_map(|part| self.images(part))
    }

    /// The images of a part, class by class.
    pub(crate) fn images(&self, part: Part) -> impl Iterator<Item = ImageRef> {
        self.classes.iter().flat_map(move |draw| {
            let ClassDraw { class, turn, .. } = *draw;
            draw.examples(part).iter().map(move |&example| ImageRef { class, example, turn })
        })
    }

    /// The labels of a part, class by class.
    pub(crate) fn labels(&self, part: Part) -> impl Iterator<Item = usize> {
        let draws = self.classes.iter().enumerate();
        draws.flat_map(move |(label, draw)| std::iter::repeat_n(label, draw.examples(part).len()))
    }
}

/// Checks that episodes of `protocol` can be drawn from `set`, of which one may show `needed` examples of a class.
pub(super) fn check(
    set: &dyn ClassSet,
    protocol: Protocol,
    needed: usize,
) -> Result<(), EpisodeError> {
    let Protocol { ways, shots, queries } = protocol;
    if ways == 0 || shots == 0 || queries == 0 {
        return Err(EpisodeError::Zero(protocol));
    }
    let classes = set.classes();
    if classes < ways {
        return Err(EpisodeError::NotEnoughClasses { ways, actual: classes });
    }
    match (0..classes).find(|&class| set.examples(class) < needed) {
        Some(class) => {
            let (class, actual) = (set.class_name(class), set.examples(class));
            Err(EpisodeError::NotEnoughExamples { protocol, class, needed, actual })
        }
        None => Ok(()),
    }
}

/// Draws classes, and of each the support and as many queries as `queries` has in its place.
pub(super) fn episode(
    set: &dyn ClassSet,
    shots: usize,
    queries: &[usize],
    random: &mut Stream,
) -> Episode {
    let classes = random.sample(set.classes(), queries.len());
    let counts = queries.iter().map(|&queries| [shots, queries]);
    examples(set, classes.into_iter().zip(counts), random)
}

/// Draws the labelled examples and the queries of classes, so many of each, and the turn of a class if `set` has
/// them in turns.
pub(super) fn examples(
    set: &dyn ClassSet,
    counts: impl Iterator<Item = (usize, [usize; 2])>,
    random: &mut Stream,
) -> Episode {
    let classes = counts.map(|(class, [shots, queries])| {
        let turn = match set.draws_turns() {
            true => QuarterTurn::ALL[random.below(4)],
            false => QuarterTurn::R0,
        };
        let mut support = random.sample(set.examples(class), shots + queries);
        let query = support.split_off(shots);
        ClassDraw { class, turn, support, query }
    });
    Episode { classes: classes.collect() }
}
