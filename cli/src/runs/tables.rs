//! Runs as tables and as JSON.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fewshot::train::RunHistory;

use super::named::{self, NamedRun};
use super::summary::{self, RESULTS, setting, state, steps, time, validation};
use crate::prelude::*;

const COLUMNS: [&str; 8] =
    ["RUN", "METHOD", "DATA", "STATE", "STEPS", "BEST VALIDATION", "LAST VALIDATION", "TIME LEFT"];

/// One broken run does not hide the others.
pub(super) fn list(folder: &Path, as_json: bool) -> Result {
    let folders = RunHistory::folders(folder)?;
    if folders.is_empty() {
        return Err(failed!("no runs in {}", folder.display()));
    }
    let (mut runs, mut broken) = (Vec::new(), Vec::new());
    for folder in &folders {
        match RunHistory::read(folder) {
            Ok(run) => runs.push((folder.display().to_string(), run)),
            Err(error) => broken.push(error),
        }
    }
    runs.sort_by_key(|(_, run)| Reverse(run.written()));
    if as_json {
        print(Value::from_iter(runs.iter().map(|(_, run)| summary::json(run))))?;
    } else if !runs.is_empty() {
        let names = [COLUMNS.map(str::to_owned)];
        print(table(names.into_iter().chain(runs.iter().map(row))))?;
    }
    broken.into_iter().next().map_or(Ok(()), |error| Err(error.into()))
}

/// A run by the path that every command takes.
fn row((path, run): &NamedRun) -> [String; 8] {
    [
        path.clone(),
        known(setting(run, "method")),
        known(setting(run, "data")),
        known(state(run)),
        steps(run),
        validation(run.best()),
        validation(run.validations().last()),
        known(run.seconds_left().map(time)),
    ]
}

pub(super) fn show(folder: &Path, as_json: bool) -> Result {
    let run = RunHistory::read(folder)?;
    let settings = run.config().get("user").unwrap_or(&Value::Null);
    if as_json {
        let (loss, accuracy) = (run.mean_loss(), run.mean_accuracy());
        let mut report = summary::json(&run);
        join(&mut report, json!({"loss": loss, "accuracy": accuracy, "settings": settings}));
        return print(report);
    }
    let mut rows = vec![["run".to_owned(), run.folder().display().to_string()]];
    rows.extend(flattened(settings).into_iter().map(|(name, value)| [name, text(value)]));
    rows.extend(RESULTS.map(|(name, result)| [name.to_owned(), result(&run)]));
    print(table(rows))
}

/// A setting of each run, null where it has none.
type Compared = BTreeMap<String, Vec<Value>>;

pub(super) fn compare(folders: &[PathBuf], as_json: bool) -> Result {
    let runs = named::read(folders)?;
    let settings = differing(&runs);
    if as_json {
        let reports = runs.iter().enumerate().map(|(index, named)| report(index, named, &settings));
        return print(Value::from_iter(reports));
    }
    let row = |name: &str, cells: &mut dyn Iterator<Item = String>| -> Vec<String> {
        [name.to_owned()].into_iter().chain(cells).collect()
    };
    let mut rows = vec![row("RUN", &mut runs.iter().map(|(name, _)| name.clone()))];
    for (name, values) in &settings {
        let value = |value: &Value| known((!value.is_null()).then(|| text(value)));
        rows.push(row(name, &mut values.iter().map(value)));
    }
    rows.extend(RESULTS.map(|(name, of)| row(name, &mut runs.iter().map(|(_, run)| of(run)))));
    print(table(rows))
}

fn report(index: usize, (name, run): &NamedRun, settings: &Compared) -> Value {
    let mut report = summary::json(run);
    let own = settings.iter().map(|(name, values)| (name.clone(), values[index].clone()));
    join(&mut report, json!({"name": name, "settings": Value::from_iter(own)}));
    report
}

/// The settings in which runs differ. Those given by the user have no prefix; steps wanted are told with
/// the steps done.
fn differing(runs: &[NamedRun]) -> Compared {
    let mut all = Compared::new();
    for (index, (_, run)) in runs.iter().enumerate() {
        let config = json!(run.config());
        for (name, value) in flattened(&config) {
            let name = name.strip_prefix("user.").unwrap_or(&name).to_owned();
            all.entry(name).or_insert_with(|| vec![Value::Null; runs.len()])[index] = value.clone();
        }
    }
    all.retain(|name, values| name != "steps" && values.iter().any(|value| *value != values[0]));
    all
}

/// All settings that are not null, with dotted names.
fn flattened(settings: &Value) -> Vec<(String, &Value)> {
    let Value::Object(fields) = settings else {
        return (!settings.is_null()).then(|| (String::new(), settings)).into_iter().collect();
    };
    let mut leaves = Vec::new();
    for (field, value) in fields {
        for (inner, value) in flattened(value) {
            let dot = if inner.is_empty() { "" } else { "." };
            leaves.push((format!("{field}{dot}{inner}"), value));
        }
    }
    leaves
}

/// Items of a list that are told.
const TOLD: usize = 8;

fn text(setting: &Value) -> String {
    if let Some(items) = setting.as_array().filter(|items| items.len() > TOLD) {
        let first: Vec<String> = items.iter().take(TOLD).map(Value::to_string).collect();
        return format!("[{}, and {} more]", first.join(","), items.len() - TOLD);
    }
    setting.as_str().map_or_else(|| setting.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_dotted_names_and_none_is_null() {
        let settings = json!({"a": {"b": 0.5, "c": null, "d": {"e": "f"}}, "g": [1, 2]});
        let items = flattened(&settings).into_iter().map(|(name, value)| (name, text(value)));
        let expected = [("a.b", "0.5"), ("a.d.e", "f"), ("g", "[1,2]")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(items.collect::<Vec<_>>(), expected);
        assert_eq!(text(&json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])), "[1,2,3,4,5,6,7,8, and 2 more]");
    }
}
