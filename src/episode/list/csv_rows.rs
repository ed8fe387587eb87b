//! A row of CSV for each example.

use std::collections::HashMap;

use csv::{ReaderBuilder, StringRecord, Trim, Writer};

use super::Episode;
use super::draft::{Draft, Example, Fault, Names};
use crate::episode::Part;

const COLUMNS: [&str; 4] = ["episode", "class", "picture", "part"];

const TURN: &str = "turn";

/// An episode under way, and the line of its first row.
struct Begun {
    draft: Draft,
    line: u64,
}

pub(super) fn read(text: &[u8], names: &mut Names) -> Result<Vec<Episode>, Fault> {
    let mut reader = ReaderBuilder::new().trim(Trim::Headers).from_reader(text);
    let header = reader.headers().map_err(fault)?.clone();
    let column = |name: &str| header.iter().position(|column| column == name);
    let mut columns = [0; 4];
    for (place, name) in columns.iter_mut().zip(COLUMNS) {
        *place = column(name).ok_or_else(|| {
            let columns = header.iter().collect::<Vec<_>>().join(", ");
            Fault { line: 1, reason: format!("there is no column {name}: {columns}") }
        })?;
    }
    let turn = column(TURN);
    let (mut begun, mut places) = (Vec::<Begun>::new(), HashMap::new());
    let mut row = StringRecord::new();
    while reader.read_record(&mut row).map_err(fault)? {
        let line = row.position().map_or(0, csv::Position::line);
        let at = |reason| Fault { line, reason };
        // Spaces may belong to the names of classes and pictures.
        let [episode, class, picture, part] = columns.map(|column| &row[column]);
        let [episode, part] = [episode, part].map(str::trim);
        let place = *places.entry(episode.to_owned()).or_insert_with(|| {
            begun.push(Begun { draft: Draft::default(), line });
            begun.len() - 1
        });
        let draft = &mut begun[place].draft;
        let turn = degrees(turn.map_or("", |turn| row[turn].trim())).map_err(at)?;
        let part = part_of(part).map_err(at)?;
        let way = draft.way(names, class, turn).map_err(at)?;
        let example = Example::Name(picture.to_owned());
        draft.add(names, way, part, &example).map_err(at)?;
    }
    let finished = begun
        .into_iter()
        .map(|Begun { draft, line }| draft.finish(names).map_err(|reason| Fault { line, reason }));
    finished.collect()
}

fn fault(error: csv::Error) -> Fault {
    let line = error.position().map_or(1, csv::Position::line);
    Fault { line, reason: error.to_string() }
}

fn degrees(text: &str) -> Result<u16, String> {
    match text {
        "" => Ok(0),
        text => text.parse().map_err(|_| format!("a turn is a number of degrees, not {text:?}")),
    }
}

fn part_of(text: &str) -> Result<Part, String> {
    match text {
        "support" => Ok(Part::Support),
        "query" | "queries" => Ok(Part::Query),
        _ => Err(format!("a part is support or query, not {text:?}")),
    }
}

pub(super) fn write(episodes: &[Episode], names: &mut Names) -> Vec<u8> {
    let mut writer = Writer::from_writer(Vec::new());
    let mut draws = episodes.iter().flat_map(|episode| &episode.classes);
    let turned = draws.any(|draw| draw.turn.degrees() > 0);
    let turn = |text: String| turned.then_some(text);
    let mut put = |row: [String; 4], more: Option<String>| {
        let row = row.into_iter().chain(more);
        writer.write_record(row).expect("memory takes rows of one length");
    };
    put(COLUMNS.map(str::to_owned), turn(TURN.to_owned()));
    for (index, episode) in episodes.iter().enumerate() {
        for draw in &episode.classes {
            let class = names.class_name(draw.class);
            for (part, examples) in [("support", &draw.support), ("query", &draw.query)] {
                for &example in examples {
                    let picture = match names.written(draw.class, example) {
                        Example::Name(name) => name,
                        Example::Number(number) => number.to_string(),
                    };
                    let row = [index.to_string(), class.clone(), picture, part.to_owned()];
                    put(row, turn(draw.turn.degrees().to_string()));
                }
            }
        }
    }
    writer.into_inner().expect("memory takes rows")
}
