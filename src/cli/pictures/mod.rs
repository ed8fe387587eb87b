//! `fewshot adapt` and `fewshot predict`: from a folder of pictures to a classifier.

mod adapt;
mod args;
mod plots;
mod predict;

pub(crate) use adapt::adapt;
pub(crate) use args::{ADAPT_HELP, AdaptArgs, PREDICT_HELP, PredictArgs};
pub(crate) use predict::predict;

use std::path::PathBuf;

use fewshot::data::{DataError, Picture};
use rayon::prelude::*;

/// Decodes files on all threads, in order.
fn pictures(files: &[PathBuf]) -> Result<Vec<Picture>, DataError> {
    files.par_iter().map(Picture::open).collect()
}
