//! `fewshot adapt`, `fewshot predict`, `fewshot serve`, `fewshot export` and `fewshot backbones`: from a folder of pictures to a classifier.

mod adapt;
mod args;
mod backbones;
mod export;
mod plots;
mod predict;
mod run;
#[cfg(feature = "serve")]
mod serve;

pub(crate) use adapt::adapt;
pub(crate) use args::{ADAPT_HELP, AdaptArgs, EXPORT_HELP, ExportArgs, PREDICT_HELP, PredictArgs};
pub(crate) use backbones::{BackbonesCommand, backbones};
pub(crate) use export::export;
pub(crate) use predict::predict;
#[cfg(feature = "serve")]
pub(crate) use serve::{SERVE_HELP, ServeArgs, serve};

use fewshot::adapted::{Prediction, PretrainedBackbone, PublishedWeights};
use fewshot::files::{Lock, LockError};

use crate::method::Method;
use crate::prelude::*;

/// The default head on embeddings.
const METHOD: &str = "simpleshot";

/// A network that embeds pictures, and its default head.
struct Embedder<B: Backend> {
    backbone: PretrainedBackbone<B>,
    method: &'static str,
    /// The method that trained it, if it gathers no running averages for batch-norm.
    without_averages: Option<Method>,
}

enum NetworkSpec {
    /// A network as [`backbone`] takes it.
    Published(String),
    Run(PathBuf),
}

impl NetworkSpec {
    /// The network of `--backbone`: a run, where one is there and no network has its name.
    fn named(text: &str) -> Self {
        let run = run::is_run(Path::new(text)) && PublishedWeights::named(text).is_err();
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
pub(crate) fn backbone<B: Backend>(
    named: &str,
    device: &B::Device,
) -> Result<PretrainedBackbone<B>> {
    Ok(match named.split_once(':') {
        Some((name, weights)) => PretrainedBackbone::load(name, weights, device)?,
        None => PretrainedBackbone::cached(named, device)?,
    })
}

/// Keeps other processes from changing a model's file as long as the lock is held; they can read it.
fn lock(model: &Path, holder: &str) -> Result<Lock> {
    Lock::beside(model, holder).map_err(|error| match error {
        LockError::Held(by) => failed!("{} is being changed by {by}", model.display()),
        error => failed!("{}: {error}", model.display()),
    })
}

/// `true` for a picture that is less likely than `unknown` of a known class at all.
fn is_rejected(prediction: &Prediction, unknown: Option<f64>) -> bool {
    unknown.zip(prediction.known).is_some_and(|(least, known)| known < least)
}

/// A prediction with its `top` likeliest classes.
fn describe(prediction: &Prediction, top: usize, unknown: Option<f64>) -> Value {
    let classes = prediction.classes.iter().take(top);
    let classes = classes.map(|(class, p)| json!({"class": class, "probability": rounded(*p, 4)}));
    json!({
        "class": (!is_rejected(prediction, unknown)).then(|| prediction.class()),
        "known": prediction.known.map(|known| rounded(known, 4)),
        "classes": classes.collect::<Vec<_>>(),
    })
}
