//! Checkpoints of runs of `fewshot train`.

use fewshot::train::{Checkpoint, RunFolder};
use serde::de::DeserializeOwned;

use crate::data_spec::SINUSOID;
use crate::prelude::*;

/// The settings of the run that a checkpoint belongs to.
pub(crate) fn settings<R: DeserializeOwned>(checkpoint: &Checkpoint, path: &Path) -> Result<R> {
    R::deserialize(&checkpoint.settings()["user"])
        .map_err(|error| failed!("{} was not made by `fewshot train`: {error}", path.display()))
}

/// The checkpoint at a path; a run folder stands for its best checkpoint, or the last one.
pub(crate) fn file(path: &Path) -> PathBuf {
    if !path.is_dir() {
        return path.to_owned();
    }
    let best = RunFolder::best(path);
    if best.exists() { best } else { RunFolder::last(path) }
}

/// Tells a checkpoint of a run on sine waves from one on images.
pub(crate) fn is_sinusoid_run(checkpoint: &Checkpoint) -> bool {
    checkpoint.settings()["user"]["data"] == SINUSOID
}
