use fewshot::train::RunHistory;

use super::settings::{flattened, text};
use super::summary::{self, RESULTS};
use crate::cli::output::table;
use crate::cli::prelude::*;
use crate::cli::report::join;

pub(super) fn show(folder: &Path, as_json: bool) -> Result {
    let run = RunHistory::read(folder)?;
    let settings = run.config().get("user").unwrap_or(&Value::Null);
    if as_json {
        let means = json!({"loss": run.mean_loss(), "accuracy": run.mean_accuracy()});
        let mut report = summary::json(&run);
        join(&mut report, means);
        join(&mut report, json!({"settings": settings}));
        return print(report);
    }
    let mut rows = vec![["run".to_owned(), run.folder().display().to_string()]];
    rows.extend(flattened(settings).into_iter().map(|(name, value)| [name, text(value)]));
    rows.extend(RESULTS.map(|(name, result)| [name.to_owned(), result(&run)]));
    print(table(&rows))
}
