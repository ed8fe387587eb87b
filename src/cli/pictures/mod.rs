//! `fewshot adapt`, `fewshot predict` and `fewshot serve`: from a folder of pictures to a classifier.

mod adapt;
mod args;
mod embed;
mod plots;
mod predict;
#[cfg(feature = "serve")]
mod serve;

pub(crate) use adapt::adapt;
pub(crate) use args::{ADAPT_HELP, AdaptArgs, PREDICT_HELP, PredictArgs};
pub(crate) use embed::PictureEmbedding;
pub(crate) use predict::predict;
#[cfg(feature = "serve")]
pub(crate) use serve::{SERVE_HELP, ServeArgs, serve};

use burn::tensor::backend::Backend;
use fewshot::adapted::PretrainedBackbone;

use crate::cli::error::{CliError, usage};

/// The network of `NAME:FILE`.
fn backbone<B: Backend>(
    named: &str,
    device: &B::Device,
) -> Result<PretrainedBackbone<B>, CliError> {
    let (name, weights) = named
        .split_once(':')
        .ok_or_else(|| usage!("--backbone takes NAME:FILE, with the file of its weights"))?;
    Ok(PretrainedBackbone::load(name, weights, device)?)
}
