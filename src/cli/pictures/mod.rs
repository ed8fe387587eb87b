//! `fewshot adapt`, `fewshot predict`, `fewshot serve` and `fewshot backbones`: from a folder of pictures to a classifier.

mod adapt;
mod args;
mod backbones;
mod embed;
mod plots;
mod predict;
#[cfg(feature = "serve")]
mod serve;

pub(crate) use adapt::adapt;
pub(crate) use args::{ADAPT_HELP, AdaptArgs, PREDICT_HELP, PredictArgs};
pub(crate) use backbones::{BackbonesCommand, backbones};
pub(crate) use embed::PictureEmbedding;
pub(crate) use predict::predict;
#[cfg(feature = "serve")]
pub(crate) use serve::{SERVE_HELP, ServeArgs, serve};

use burn::tensor::backend::Backend;
use fewshot::adapted::{Prediction, PretrainedBackbone};
use serde_json::{Value, json};

use crate::cli::error::CliError;
use crate::cli::report::rounded;

/// The network of `NAME:FILE`, or of `NAME` with the weights in the cache.
fn backbone<B: Backend>(
    named: &str,
    device: &B::Device,
) -> Result<PretrainedBackbone<B>, CliError> {
    Ok(match named.split_once(':') {
        Some((name, weights)) => PretrainedBackbone::load(name, weights, device)?,
        None => PretrainedBackbone::cached(named, device)?,
    })
}

/// Whether a picture is less likely than `unknown` of a known class at all.
fn rejected(found: &Prediction, unknown: Option<f64>) -> bool {
    unknown.zip(found.known).is_some_and(|(least, known)| known < least)
}

/// A prediction with its `top` likeliest classes.
fn described(found: &Prediction, top: usize, unknown: Option<f64>) -> Value {
    let classes = found.classes.iter().take(top);
    let classes = classes.map(|(class, p)| json!({"class": class, "probability": rounded(*p, 4)}));
    json!({
        "class": (!rejected(found, unknown)).then(|| found.class()),
        "known": found.known.map(|known| rounded(known, 4)),
        "classes": classes.collect::<Vec<_>>(),
    })
}
