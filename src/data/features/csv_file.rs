//! Features in CSV: a row an example, a column a value, and a column of labels.

use std::fs::File;
use std::path::Path;

use csv::{Reader, ReaderBuilder, StringRecord, Trim};

use super::FeatureRows;
use crate::data::{DataError, Result};

/// Names of a column of labels.
const LABELS: [&str; 2] = ["label", "class"];

pub(super) fn read(path: &Path) -> Result<FeatureRows> {
    let damaged = DataError::damaged::<csv::Error>(path, "CSV");
    let file = File::open(path).map_err(DataError::read(path))?;
    let mut reader: Reader<File> = ReaderBuilder::new().trim(Trim::All).from_reader(file);
    let header = reader.headers().map_err(&damaged)?.clone();
    check(&header)?;
    let mut row = StringRecord::new();
    let mut more = reader.read_record(&mut row).map_err(&damaged)?;
    let labels_in = if more { label_column(&header, &row)? } else { None };
    let length = header.len() - usize::from(labels_in.is_some());
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    while more {
        for (column, field) in row.iter().enumerate() {
            match Some(column) == labels_in {
                true if field.is_empty() => {
                    return Err(refused(&row, &header[column], field, "a label"));
                }
                true => labels.push(field.to_owned()),
                false => values.push(
                    number(field)
                        .ok_or_else(|| refused(&row, &header[column], field, "a finite number"))?,
                ),
            }
        }
        more = reader.read_record(&mut row).map_err(&damaged)?;
    }
    let rows = FeatureRows::new(length, values)?;
    if labels_in.is_some() { rows.with_labels(labels) } else { Ok(rows) }
}

/// Refuses a first line that names no columns, or leaves one without a name, as the numbers of rows often are.
fn check(header: &StringRecord) -> Result {
    let refused = |name: &str, actual: &str, expected| {
        let (name, actual) = (name.to_owned(), actual.to_owned());
        Err(DataError::NoFeaturesIn { name, expected, actual })
    };
    if !header.is_empty() && header.iter().all(|name| name.parse::<f64>().is_ok()) {
        return refused("the first line", "a row of numbers", "the names of columns");
    }
    match header.iter().position(str::is_empty) {
        Some(column) => {
            let name = format!("column {column} of the first line");
            refused(&name, "empty, as an index of rows", "a name")
        }
        None => Ok(()),
    }
}

/// The column `label` or `class`, or else the only one whose first value is no number.
fn label_column(header: &StringRecord, first: &StringRecord) -> Result<Option<usize>> {
    let one_of = |columns: Vec<usize>| match columns[..] {
        [] => Ok(None),
        [column] => Ok(Some(column)),
        [one, other, ..] => Err(DataError::NoFeaturesIn {
            name: "the column of labels".to_owned(),
            expected: "one column without numbers, or named label or class",
            actual: format!("{} or {}", &header[one], &header[other]),
        }),
    };
    let is_named = |name: &str| LABELS.iter().any(|label| name.eq_ignore_ascii_case(label));
    let named = header.iter().enumerate().filter(|(_, name)| is_named(name));
    if let Some(column) = one_of(named.map(|(column, _)| column).collect())? {
        return Ok(Some(column));
    }
    let words = first.iter().enumerate().filter(|(_, field)| field.parse::<f64>().is_err());
    one_of(words.map(|(column, _)| column).collect())
}

fn number(field: &str) -> Option<f32> {
    field.parse().ok().filter(|number: &f32| number.is_finite())
}

fn refused(row: &StringRecord, column: &str, field: &str, expected: &'static str) -> DataError {
    let line = row.position().map_or(0, csv::Position::line);
    let name = format!("line {line}, column {column}");
    let actual = if field.is_empty() { "empty".to_owned() } else { format!("{field:?}") };
    DataError::NoFeaturesIn { name, expected, actual }
}
