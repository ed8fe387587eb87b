//! Figures of a run as words and as JSON.

use fewshot::train::{RunHistory, ValidationMetrics};
use indicatif::FormattedDuration;

use crate::prelude::*;
use crate::progress;

type Named = (&'static str, fn(&RunHistory) -> String);

/// The results that `show` and `compare` have.
pub(super) const RESULTS: [Named; 8] = [
    ("state", |run| known(state(run))),
    ("steps", steps),
    ("training time", |run| time(run.seconds())),
    ("time left", |run| known(run.seconds_left().map(time))),
    ("best validation", |run| validation(run.best())),
    ("last validation", |run| validation(run.validations().last())),
    ("loss (last 100 steps)", |run| known(run.mean_loss().map(|loss| format!("{loss:.4}")))),
    ("accuracy (last 100 steps)", |run| {
        known(run.mean_accuracy().map(|mean| format!("{mean:.2} %")))
    }),
];

/// An option of `fewshot train`.
pub(super) fn setting<'a>(run: &'a RunHistory, name: &str) -> Option<&'a str> {
    run.config().get("user")?.get(name)?.as_str()
}

pub(super) fn state(run: &RunHistory) -> Option<String> {
    run.state().map(lower)
}

pub(super) fn steps(run: &RunHistory) -> String {
    let of_all = run.steps_wanted().map(|steps| format!(" of {steps}"));
    format!("{}{}", run.steps_done(), of_all.unwrap_or_default())
}

pub(super) fn validation(validation: Option<&ValidationMetrics>) -> String {
    known(
        validation
            .map(|validation| format!("{} (step {})", validation.validation, validation.step)),
    )
}

pub(super) fn time(seconds: f64) -> String {
    FormattedDuration(progress::seconds(seconds)).to_string()
}

pub(super) fn json(run: &RunHistory) -> Value {
    json!({
        "name": run.name(),
        "folder": run.folder().display().to_string(),
        "method": setting(run, "method"),
        "data": setting(run, "data"),
        "state": run.state(),
        "steps": run.steps_done(),
        "steps_wanted": run.steps_wanted(),
        "best": run.best().map(validation_json),
        "last": run.validations().last().map(validation_json),
        "seconds": rounded(run.seconds(), 3),
        "seconds_left": run.seconds_left().map(|seconds| rounded(seconds, 3)),
    })
}

fn validation_json(metrics: &ValidationMetrics) -> Value {
    let score = metrics.validation;
    json!({"step": metrics.step, "measure": score.measure, "mean": score.mean, "ci95": score.ci95})
}
