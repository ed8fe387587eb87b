//! Outcomes of the tests of recipes, a line of JSON each.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};

use serde::{Deserialize, Serialize};

use super::recipe::Recipe;
use crate::prelude::*;

/// One figure of one seed, and all that it takes to find it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) recipe: String,
    pub(super) learner: String,
    pub(super) options: String,
    pub(super) figure: String,
    /// `null` where it is not finite.
    pub(super) value: Option<f64>,
    pub(super) ci95: Option<f64>,
    pub(super) paper: Option<String>,
    pub(super) band: Option<f64>,
    pub(super) seed: u64,
    pub(super) protocol: Value,
    pub(super) selected_by: Value,
    pub(super) steps: u64,
    pub(super) checkpoint_step: u64,
    pub(super) train_seconds: f64,
    /// The training before, in a recipe of two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) base: Option<String>,
    pub(super) train: String,
    pub(super) eval: String,
    pub(super) commit: Option<String>,
    pub(super) version: String,
    pub(super) machine: Value,
    pub(super) date: String,
}

fn path(results: &Path, recipe: &Recipe) -> PathBuf {
    results.join(format!("{}.jsonl", recipe.name))
}

pub(super) fn append(results: &Path, recipe: &Recipe, outcome: &Outcome) -> Result {
    let path = path(results, recipe);
    let line = serde_json::to_string(outcome).expect("an outcome is plain data") + "\n";
    let written = fs::create_dir_all(results).and_then(|()| {
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        file.write_all(line.as_bytes())?;
        file.sync_data()
    });
    written.map_err(|error| failed!("{}: {error}", path.display()))
}

/// The outcomes of a recipe so far, the oldest first.
pub(super) fn read(results: &Path, recipe: &Recipe) -> Result<Vec<Outcome>> {
    let path = path(results, recipe);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed!("{}: {error}", path.display())),
    };
    let line = |(number, line): (usize, &str)| {
        let number = number + 1;
        serde_json::from_str(line)
            .map_err(|error| failed!("{}, line {number}: {error}", path.display()))
    };
    text.lines().enumerate().map(line).collect()
}
