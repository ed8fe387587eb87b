//! Names in a list of episodes, and the episodes that are made of them.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{ClassDraw, ClassSet, Episode, EpisodeError};
use crate::data::QuarterTurn;
use crate::episode::Part;

/// An example of a class as a list has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Example {
    Number(usize),
    Name(String),
}

/// A fault of a list.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) line: u64,
    pub(super) reason: String,
}

impl Fault {
    pub(super) fn in_file(self, path: &Path) -> EpisodeError {
        let Self { line, reason } = self;
        EpisodeError::ListLine { path: path.to_path_buf(), line, reason }
    }
}

/// Classes and examples of a set by their names.
pub(super) struct Names<'a> {
    set: &'a dyn ClassSet,
    /// Several classes of a name are none.
    classes: HashMap<String, Option<usize>>,
    /// Examples of the classes that were asked for; several of a name are none.
    examples: HashMap<usize, HashMap<String, Option<usize>>>,
}

impl<'a> Names<'a> {
    pub(super) fn new(set: &'a dyn ClassSet) -> Self {
        let names = (0..set.classes()).map(|class| set.class_name(class));
        Self { set, classes: unique(names), examples: HashMap::new() }
    }

    /// The class of a name, or of the name without spaces around it.
    fn class(&self, name: &str) -> Result<usize, String> {
        match self.classes.get(name).or_else(|| self.classes.get(name.trim())) {
            Some(Some(class)) => Ok(*class),
            Some(None) => Err(format!("there are several classes {name:?}")),
            None => Err(format!("there is no class {name:?} among {}", self.set.classes())),
        }
    }

    pub(super) fn class_name(&self, class: usize) -> String {
        self.set.class_name(class)
    }

    fn class_examples(&mut self, class: usize) -> &HashMap<String, Option<usize>> {
        let set = self.set;
        self.examples.entry(class).or_insert_with(|| {
            let names = (0..set.examples(class)).map(|example| set.example_name(class, example));
            let names: Option<Vec<_>> = names.map(|name| name.map(str::to_owned)).collect();
            unique(names.unwrap_or_default().into_iter())
        })
    }

    /// The example of a number or name, or of the text without spaces around it.
    fn example(&mut self, class: usize, example: &Example) -> Result<usize, String> {
        let name = match example {
            Example::Number(number) => return Ok(*number),
            Example::Name(name) => name,
        };
        if let Some(number) = number_of(name) {
            return Ok(number);
        }
        let trimmed = name.trim();
        match self.class_examples(class).get(name).copied() {
            None if trimmed != name => self.example(class, &Example::Name(trimmed.to_owned())),
            Some(Some(place)) => Ok(place),
            Some(None) => Err(format!(
                "{} has several pictures {name:?}: give numbers",
                self.class_phrase(class)
            )),
            None => Err(format!("{} has no picture {name:?}", self.class_phrase(class))),
        }
    }

    fn class_phrase(&self, class: usize) -> String {
        format!("class {:?}", self.set.class_name(class))
    }

    /// An example by its name, or by its number where it has none of its own.
    pub(super) fn written(&mut self, class: usize, example: usize) -> Example {
        let set = self.set;
        let named = set.example_name(class, example).filter(|name| number_of(name).is_none());
        match named {
            Some(name) if self.class_examples(class).get(name) == Some(&Some(example)) => {
                Example::Name(name.to_owned())
            }
            _ => Example::Number(example),
        }
    }
}

/// The place of each name, or none if it has several.
fn unique(names: impl Iterator<Item = String>) -> HashMap<String, Option<usize>> {
    let mut places = HashMap::new();
    for (place, name) in names.enumerate() {
        places.entry(name).and_modify(|place| *place = None).or_insert(Some(place));
    }
    places
}

fn number_of(text: &str) -> Option<usize> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// An episode under way.
#[derive(Default)]
pub(super) struct Draft {
    classes: Vec<ClassDraw>,
}

impl Draft {
    /// The way of a class in a turn of so many degrees; a new one if the episode did not have it.
    pub(super) fn way(&mut self, names: &Names, name: &str, turn: u16) -> Result<usize, String> {
        let class = names.class(name)?;
        let turn = QuarterTurn::from_degrees(turn)
            .ok_or_else(|| format!("a turn has 0, 90, 180 or 270 degrees, not {turn}"))?;
        let known = self.classes.iter().position(|draw| draw.class == class && draw.turn == turn);
        if let Some(way) = known {
            return Ok(way);
        }
        check_turn(names.set, class, turn)?;
        self.classes.push(ClassDraw { class, turn, support: Vec::new(), query: Vec::new() });
        Ok(self.classes.len() - 1)
    }

    /// Number of classes so far.
    pub(super) fn ways(&self) -> usize {
        self.classes.len()
    }

    pub(super) fn add(
        &mut self,
        names: &mut Names,
        way: usize,
        part: Part,
        example: &Example,
    ) -> Result<(), String> {
        let draw = &mut self.classes[way];
        let example = names.example(draw.class, example)?;
        let repeated = draw.support.contains(&example) || draw.query.contains(&example);
        check_example(names.set, draw.class, example, repeated)?;
        match part {
            Part::Support => draw.support.push(example),
            Part::Query => draw.query.push(example),
        }
        Ok(())
    }

    pub(super) fn finish(self, names: &Names) -> Result<Episode, String> {
        let episode = Episode { classes: self.classes };
        check_parts(names.set, &episode)?;
        Ok(episode)
    }
}

/// Checks that `set` has the examples of the episode, that each class has a support and some class a query, and
/// that nothing is shown twice.
pub(super) fn check(set: &dyn ClassSet, episode: &Episode) -> Result<(), String> {
    let mut ways = HashSet::new();
    for draw in &episode.classes {
        let ClassDraw { class, turn, support, query } = draw;
        if *class >= set.classes() {
            return Err(format!("there is no class {class} among {}", set.classes()));
        }
        if !ways.insert((class, turn)) {
            return Err(format!("class {:?} is twice in the episode", set.class_name(*class)));
        }
        check_turn(set, *class, *turn)?;
        let mut examples = HashSet::new();
        for &example in support.iter().chain(query) {
            check_example(set, *class, example, !examples.insert(example))?;
        }
    }
    check_parts(set, episode)
}

/// Checks that each class has a support, and some class a query.
fn check_parts(set: &dyn ClassSet, episode: &Episode) -> Result<(), String> {
    let bare = episode.classes.iter().find(|draw| draw.support.is_empty());
    if let Some(draw) = bare {
        return Err(format!("class {:?} has no support", set.class_name(draw.class)));
    }
    match episode.classes.iter().all(|draw| draw.query.is_empty()) {
        true => Err("the episode has no query".to_owned()),
        false => Ok(()),
    }
}

fn check_turn(set: &dyn ClassSet, class: usize, turn: QuarterTurn) -> Result<(), String> {
    match turn == QuarterTurn::R0 || set.draws_turns() {
        true => Ok(()),
        false => {
            let name = set.class_name(class);
            Err(format!("class {name:?} is not shown in turns by this dataset"))
        }
    }
}

/// Checks that the class has the example, which is not a `repeated` one.
fn check_example(
    set: &dyn ClassSet,
    class: usize,
    example: usize,
    repeated: bool,
) -> Result<(), String> {
    let name = || set.class_name(class);
    let count = set.examples(class);
    if example >= count {
        let last = count - 1;
        return Err(format!("class {:?} has pictures 0 to {last}, and no {example}", name()));
    }
    if repeated {
        let file = set.example_name(class, example);
        let picture = file.map_or(example.to_string(), |file| format!("{file:?}"));
        return Err(format!("picture {picture} of class {:?} is twice in the episode", name()));
    }
    Ok(())
}
