use serde_json::{Value, json};

use super::{Communicator, ParallelError};
use crate::settings::difference;

/// Makes sure that all processes have the same version of this library and the same `settings`.
///
/// # Errors
/// [`ParallelError::Disagreement`] with the first setting that differs from that of process 0, the same
/// in every process, so that none of them goes on alone; and those of the communicator.
pub fn agree(
    communicator: &dyn Communicator,
    what: &str,
    settings: &Value,
) -> Result<(), ParallelError> {
    let own = json!({ "version": env!("CARGO_PKG_VERSION"), what: settings });
    let all = communicator.all_gather(own.to_string().as_bytes())?;
    let read = |(rank, bytes): (usize, &Vec<u8>)| {
        serde_json::from_slice(bytes)
            .map_err(|error| ParallelError::Message { rank, reason: error.to_string() })
    };
    let all = all.iter().enumerate().map(read).collect::<Result<Vec<Value>, _>>()?;
    let mut others = all.iter().map(|other| difference("", &all[0], other));
    let Some((name, first, other)) = others.find_map(|found| found) else {
        return Ok(());
    };
    let same = |value: &Value| {
        let found = difference("", &all[0], value);
        found.is_some_and(|found| (&found.0, &found.2) == (&name, &other))
    };
    let ranks = all.iter().enumerate().filter(|(_, value)| same(value)).map(|(rank, _)| rank);
    let ranks = ranks.collect();
    let what = what.to_owned();
    Err(ParallelError::Disagreement { what, name, first, other, ranks })
}
