//! `fewshot train`.

mod fit;
mod images;
mod memory;
mod scale;

pub(super) use fit::{Fitting, Pace, Tasks, folder};
pub(super) use scale::{GradCheckpoint, ScaleArgs, World, used};

use super::args::{Method, TrainArgs};
use super::backend;
use super::data_spec::DataSpec;
use super::error::CliError;
use super::{sinusoids, world};

pub(crate) fn run(args: TrainArgs) -> Result<(), CliError> {
    let world = world::join()?;
    world::run_or_abort(&*world, || {
        check(&args)?;
        backend::prepare(&args.device)?;
        match args.data.clone() {
            DataSpec::Images(data) => images::run(args, data, world.clone()),
            DataSpec::Sinusoids => sinusoids::train(args, world.clone()),
        }
    })
}

fn check(args: &TrainArgs) -> Result<(), CliError> {
    let usage = |text: &str| Err(CliError::Usage(text.to_owned()));
    if !(args.lr.is_finite() && args.lr > 0.0) {
        return usage("--lr must be a positive number");
    }
    if args.metric.is_some() && args.method != Method::Protonet {
        return Err(CliError::Usage(format!("--metric is for protonet, not for {}", args.method)));
    }
    if args.clip_norm.is_some_and(|norm| !(norm.is_finite() && norm > 0.0)) {
        return usage("--clip-norm must be a positive number");
    }
    args.scale.check(args.method)
}
