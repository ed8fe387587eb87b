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

/// Checks that episodes of `protocol` can be drawn, of which one may show `needed` examples of a class.
pub(super) fn check(
    classes: usize,
    examples: impl Fn(usize) -> usize,
    name: impl Fn(usize) -> String,
    protocol: Protocol,
    needed: usize,
) -> Result<(), EpisodeError> {
    let Protocol { ways, shots, queries } = protocol;
    if ways == 0 || shots == 0 || queries == 0 {
        return Err(EpisodeError::Zero(protocol));
    }
    if classes < ways {
        return Err(EpisodeError::NotEnoughClasses { ways, actual: classes });
    }
    match (0..classes).find(|&class| examples(class) < needed) {
        Some(class) => {
            let (class, actual) = (name(class), examples(class));
            Err(EpisodeError::NotEnoughExamples { protocol, class, needed, actual })
        }
        None => Ok(()),
    }
}

/// Draws classes, each in a turn if they are `turned`, and of each the support and as many queries as `queries` has in its place.
pub(super) fn draw(
    classes: usize,
    examples: impl Fn(usize) -> usize,
    turned: bool,
    shots: usize,
    queries: &[usize],
    random: &mut Stream,
) -> Episode {
    let classes = random.sample(classes, queries.len());
    let classes = classes.into_iter().zip(queries).map(|(class, queries)| {
        let turn = match turned {
            true => QuarterTurn::ALL[random.below(4)],
            false => QuarterTurn::R0,
        };
        let mut support = random.sample(examples(class), shots + queries);
        let query = support.split_off(shots);
        ClassDraw { class, turn, support, query }
    });
    Episode { classes: classes.collect() }
}
