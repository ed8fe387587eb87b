//! A line of JSON for each episode.

use serde::{Deserialize, Serialize};

use super::draft::{Draft, Example, Fault, Names};
use super::{ClassDraw, Episode};
use crate::episode::Part;

#[derive(Serialize, Deserialize)]
struct Line {
    classes: Vec<Class>,
}

#[derive(Serialize, Deserialize)]
struct Class {
    class: String,
    #[serde(default, skip_serializing_if = "is_upright")]
    turn: u16,
    support: Vec<Example>,
    #[serde(alias = "query")]
    queries: Vec<Example>,
}

fn is_upright(turn: &u16) -> bool {
    *turn == 0
}

pub(super) fn read(text: &[u8], names: &mut Names) -> Result<Vec<Episode>, Fault> {
    let mut episodes = Vec::new();
    for (line, bytes) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let at = |reason| Fault { line, reason };
        if !bytes.trim_ascii().is_empty() {
            episodes.push(episode(bytes, names).map_err(at)?);
        }
    }
    Ok(episodes)
}

fn episode(line: &[u8], names: &mut Names) -> Result<Episode, String> {
    let Line { classes } = serde_json::from_slice(line).map_err(|error| {
        // A line of its own has no other line to tell of.
        let text = error.to_string();
        let text = text.split(" at line ").next().unwrap_or_default();
        format!("no episode, at column {}: {text}", error.column())
    })?;
    let mut draft = Draft::default();
    for Class { class, turn, support, queries } in classes {
        let before = draft.ways();
        let way = draft.way(names, &class, turn)?;
        if way < before {
            return Err(format!("class {class:?} is twice in the episode"));
        }
        for (part, examples) in [(Part::Support, support), (Part::Query, queries)] {
            for example in &examples {
                draft.add(names, way, part, example)?;
            }
        }
    }
    draft.finish(names)
}

pub(super) fn write(episodes: &[Episode], names: &mut Names) -> Vec<u8> {
    let mut text = Vec::new();
    for Episode { classes } in episodes {
        let classes = classes.iter().map(|draw| written(draw, names)).collect();
        let line = serde_json::to_vec(&Line { classes }).expect("names and numbers are plain data");
        text.extend(line);
        text.push(b'\n');
    }
    text
}

fn written(draw: &ClassDraw, names: &mut Names) -> Class {
    let mut examples = |numbers: &[usize]| {
        numbers.iter().map(|&number| names.written(draw.class, number)).collect::<Vec<_>>()
    };
    let [support, queries] = [&draw.support, &draw.query].map(|numbers| examples(numbers));
    Class { class: names.class_name(draw.class), turn: draw.turn.degrees(), support, queries }
}
