//! `fewshot adapt`, `fewshot predict`, `fewshot serve` and `fewshot backbones`: from a folder of pictures to a classifier.

mod adapt;
mod args;
mod backbones;
mod embed;
mod plots;
mod predict;
mod run;
#[cfg(feature = "serve")]
mod serve;

pub(crate) use adapt::adapt;
pub(crate) use args::{ADAPT_HELP, AdaptArgs, PREDICT_HELP, PredictArgs};
pub(crate) use backbones::{BackbonesCommand, backbones};
pub(crate) use embed::PictureEmbedding;
pub(crate) use predict::predict;
#[cfg(feature = "serve")]
pub(crate) use serve::{SERVE_HELP, ServeArgs, serve};

use fewshot::adapted::{Prediction, PretrainedBackbone, PublishedWeights};

use super::prelude::*;
use crate::cli::args::Method;
use crate::cli::report::rounded;

/// How classes are learned from embeddings if nothing else is said.
const METHOD: &str = "simpleshot";

/// A network that embeds pictures, and how classes are learned from its embeddings if nothing else is said.
struct Embedder<B: Backend> {
    backbone: PretrainedBackbone<B>,
    method: &'static str,
    /// What trained it, if that gathers no running averages of batch-norm: pictures must give them.
    without_averages: Option<Method>,
}

/// What embeds pictures, before it is read.
enum NetworkSpec {
    /// As [`backbone`] takes it.
    Published(String),
    /// A folder or a checkpoint.
    Run(PathBuf),
}

impl NetworkSpec {
    /// What `--backbone` names: a run, where one is there and no network has its name.
    fn named(text: &str) -> Self {
        let run = run::is_run(Path::new(text)) && PublishedWeights::of(text).is_err();
        if run { Self::Run(text.into()) } else { Self::Published(text.to_owned()) }
    }

    fn open<B: AutodiffBackend>(&self, device: &B::Device) -> Result<Embedder<B::InnerBackend>> {
        match self {
            Self::Run(run) => run::network::<B>(run, device),
            Self::Published(named) => {
                let backbone = backbone(named, device)?;
                Ok(Embedder { backbone, method: METHOD, without_averages: None })
            }
        }
    }
}

/// The network of `NAME:FILE`, or of `NAME` with the weights in the cache.
fn backbone<B: Backend>(named: &str, device: &B::Device) -> Result<PretrainedBackbone<B>> {
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
