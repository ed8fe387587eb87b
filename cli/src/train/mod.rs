//! `fewshot train`.

mod images;
mod memory;

use crate::args::TrainArgs;
use crate::data_spec::DataSpec;
use crate::method::Method;
use crate::prelude::*;
use crate::sinusoids;
use crate::world;

pub(crate) fn run(args: &TrainArgs) -> Result {
    let world = world::join()?;
    world::run_or_abort(&*world, || {
        check(args)?;
        backend::prepare(args.device.threads)?;
        match &args.data {
            DataSpec::Images(data) => images::run(args, data.clone(), world.clone()),
            DataSpec::Sinusoids => sinusoids::train(args, world.clone()),
        }
    })
}

fn check(args: &TrainArgs) -> Result {
    let method = args.method;
    if args.lr.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        return Err(usage!("--lr must be a positive number"));
    }
    if args.metric.is_some() && method != Method::Protonet {
        return Err(usage!("--metric is for protonet, not for {method}"));
    }
    if args.clip_norm.is_some_and(|norm| !(norm.is_finite() && norm > 0.0)) {
        return Err(usage!("--clip-norm must be a positive number"));
    }
    args.scale.check(method)
}
