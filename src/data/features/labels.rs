//! Labels of rows in a file of text.

use std::fs;
use std::path::Path;

use crate::data::{DataError, Result};

/// The labels of a file, one a line; empty lines may end it.
pub(super) fn read(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).map_err(DataError::read(path))?;
    let lines = text.trim_start_matches('\u{feff}').trim_end().lines();
    let label = |(line, text): (usize, &str)| match text.trim() {
        "" => Err(DataError::NoFeaturesIn {
            name: format!("line {} of {}", line + 1, path.display()),
            expected: "a label",
            actual: "empty".to_owned(),
        }),
        text => Ok(text.to_owned()),
    };
    lines.enumerate().map(label).collect()
}
