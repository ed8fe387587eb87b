use serde_json::{Value, json};

use super::{Communicator, ParallelError};
use crate::settings::difference;

/// Makes sure that all processes have the same version of this library and the same `settings`.
///
/// # Errors
/// [`ParallelError::Disagreement`] with the first setting that differs from that of process 0, the same
/// in every process, so that none of them goes on alone; and those of the communicator.
pub fn agree(communicator: &dyn Communicator, settings: &Value) -> Result<(), ParallelError> {
    let own = json!({ "version": env!("CARGO_PKG_VERSION"), "settings": settings });
    let all = communicator.all_gather(own.to_string().as_bytes())?;
    let read = |(rank, bytes): (usize, &Vec<u8>)| {
        serde_json::from_slice(bytes)
            .map_err(|error| ParallelError::Message { rank, reason: error.to_string() })
    };
    let all = all.iter().enumerate().map(read).collect::<Result<Vec<Value>, _>>()?;
    let differing = |(rank, other): (usize, &Value)| Some((rank, difference("", &all[0], other)?));
    match all.iter().enumerate().find_map(differing) {
        None => Ok(()),
        Some((rank, (name, first, other))) => {
            Err(ParallelError::Disagreement { name, first, other, rank })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::thread_communicator::run_ranks;
    use super::*;

    #[test]
    fn processes_with_the_same_settings_agree() {
        let settings = json!({"seed": 7, "rate": 0.1});
        let results = run_ranks(3, |process| agree(process, &settings));
        assert_eq!(results, [Ok(()), Ok(()), Ok(())]);
    }

    #[test]
    fn every_process_names_the_first_setting_that_differs_and_where() {
        let results = run_ranks(4, |process| {
            let seed = if process.rank() % 2 == 1 { 8 } else { 7 };
            agree(process, &json!({"rate": 0.1, "seed": seed}))
        });
        let expected = ParallelError::Disagreement {
            name: "settings.seed".to_owned(),
            first: "7".to_owned(),
            other: "8".to_owned(),
            rank: 1,
        };
        assert!(results.iter().all(|result| result.as_ref() == Err(&expected)), "{results:?}");
        assert_eq!(
            expected.to_string(),
            "the processes differ in the settings: settings.seed is 7 in process 0 and 8 in \
             process 1"
        );
    }
}
