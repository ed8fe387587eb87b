use std::cmp::Reverse;
use std::path::Path;

use fewshot::train::RunHistory;

use super::summary::{json, known, setting, state, steps, time, validation};
use crate::cli::error::{Result, failed};
use crate::cli::output::{print, table};

const COLUMNS: [&str; 8] =
    ["NAME", "METHOD", "DATA", "STATE", "STEPS", "BEST VALIDATION", "LAST VALIDATION", "TIME LEFT"];

/// One broken run does not hide the others.
pub(super) fn list(folder: &Path, as_json: bool) -> Result {
    let folders = RunHistory::folders(folder)?;
    if folders.is_empty() {
        return Err(failed!("no runs in {}", folder.display()));
    }
    let (mut runs, mut broken) = (Vec::new(), Vec::new());
    for folder in &folders {
        match RunHistory::read(folder) {
            Ok(run) => runs.push(run),
            Err(error) => broken.push(error),
        }
    }
    runs.sort_by_key(|run| Reverse(run.written()));
    if as_json {
        print(serde_json::Value::from_iter(runs.iter().map(json)))?;
    } else if !runs.is_empty() {
        let names = [COLUMNS.map(str::to_owned)];
        print(table(&names.into_iter().chain(runs.iter().map(row)).collect::<Vec<_>>()))?;
    }
    broken.into_iter().next().map_or(Ok(()), |error| Err(error.into()))
}

fn row(run: &RunHistory) -> [String; 8] {
    [
        run.name(),
        known(setting(run, "method")),
        known(setting(run, "data")),
        known(state(run)),
        steps(run),
        validation(run.best()),
        validation(run.validations().last()),
        known(run.seconds_left().map(time)),
    ]
}
