//! Networks of runs of `fewshot train`, to embed pictures with.

use fewshot::adapted::{PretrainedBackbone, TrainedNetwork, TrainingRun};
use fewshot::metric::Metric;
use fewshot::train::Checkpoint;

use super::Embedder;
use crate::checkpoint;
use crate::method::Method;
use crate::prelude::*;
use crate::settings::RunSettings;

/// `true` for a folder or a checkpoint, which no adapted model is.
pub(super) fn is_run(given: &Path) -> bool {
    given.is_dir() || Checkpoint::is_at(given)
}

/// The network of a run's best checkpoint, or of the one that is given.
pub(super) fn network<B: AutodiffBackend>(
    given: &Path,
    device: &B::Device,
) -> Result<Embedder<B::InnerBackend>> {
    let (path, name) = (checkpoint::file(given), given.display());
    if given.is_dir() && !path.exists() {
        return Err(usage!("{name} is no folder of a run: there is no checkpoint in it"));
    }
    let checkpoint = Checkpoint::read(&path)?;
    if checkpoint::is_sinusoid_run(&checkpoint) {
        return Err(usage!("{name} has learned sine waves: its network takes no pictures"));
    }
    let settings = RunSettings::from_checkpoint(&checkpoint, &path, None, None)?;
    let method = settings.method;
    let encoder = settings.embedder::<B>(&checkpoint, given, device)?;
    let without_averages = settings.inner.is_some().then_some(method);
    let data = settings.data.to_string();
    let run = TrainingRun::new(name.to_string(), (method.to_string(), data), &path)?;
    let (network, shades) = (settings.network()?, settings.shades());
    let origin = TrainedNetwork { network, shades, run: Some(run) };
    let method = match (method, settings.metric) {
        (Method::Protonet, Metric::SquaredEuclidean) => "prototypes",
        _ => super::METHOD,
    };
    let backbone = PretrainedBackbone::trained(encoder, origin, device);
    Ok(Embedder { backbone, method, without_averages })
}
