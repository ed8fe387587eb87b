//! How fast fused operations are here: beside their references, and beside what the machine can do.

mod case;
mod compare;
mod conv_stack;
mod gather_images;
mod layers;
mod limits;
mod metrics;
mod operation;
mod row;
mod steps;
mod timing;
mod training_step;

pub(crate) use case::Scale;
pub(crate) use compare::compare;
pub(crate) use operation::Operation;

use burn::tensor::backend::AutodiffBackend;
use fewshot::kernels::{Route, route};
use serde_json::json;

use super::args::BenchKernelsArgs;
use super::backend::{self, Job, Place};
use super::error::CliError;
use super::machine::Machine;
use super::output::{print, tell};
use limits::Limits;
use row::Row;

pub(crate) fn kernels(args: BenchKernelsArgs) -> Result<(), CliError> {
    backend::prepare(args.device.threads)?;
    let device = args.device.clone();
    backend::dispatch(&device, args)
}

impl Job for BenchKernelsArgs {
    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        let (scale, json, device) = (self.measure.scale(), self.measure.json, &place.device);
        // Without a fused body, both times would be of the reference.
        let fused = !matches!(route::<B>(), Route::Reference | Route::Forced);
        let beside = fused && !self.no_reference;
        let machine = Machine::here();
        let version = env!("CARGO_PKG_VERSION");
        tell(json, format_args!("{machine}\nfewshot {version}, {place}\n"))?;
        let limits = match route::<B>() {
            Route::Device(_) => Limits::of_kernels::<B::InnerBackend>(scale, device),
            _ => Limits::measure::<B>(scale, device),
        };
        tell(json, limits.table())?;
        tell(json, Row::heading())?;
        let mut rows = Vec::new();
        for operation in self.measure.operations() {
            for mut case in operation.cases::<B>(scale, device) {
                let bound = limits.of::<B>(&mut case, scale, device);
                let row = Row::measure(case, scale.effort(), beside, bound);
                tell(json, row.line())?;
                rows.push(row.json());
            }
        }
        if !json {
            return Ok(());
        }
        let mut machine = json!(machine);
        machine["route"] = route::<B>().to_string().into();
        print(json!({
            "machine": machine,
            "version": version,
            "backend": place.backend(),
            "device": place.label(),
            "limits": limits.json(),
            "rows": rows,
        }))
    }
}
