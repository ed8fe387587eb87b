use std::collections::BTreeMap;

use super::named::{self, NamedRun};
use super::settings::{flattened, text};
use super::summary::{self, RESULTS, known};
use crate::cli::output::table;
use crate::cli::prelude::*;
use crate::cli::report::join;

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
    print(table(&rows))
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
