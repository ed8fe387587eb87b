//! How fast fused operations are here: beside their references, and beside what the machine can do.

mod case;
mod compare;
mod conv_stack;
mod gather_images;
mod layers;
mod limits;
mod machine;
mod metrics;
mod operation;
mod report;
mod steps;
mod timing;
mod training_step;

pub(crate) use compare::compare;
pub(crate) use operation::Operation;

use burn::tensor::backend::AutodiffBackend;
use clap::ValueEnum;
use fewshot::kernels::{Route, route};

use super::args::BenchKernelsArgs;
use super::backend::{self, Job, Place};
use super::error::CliError;
use super::output::{print, print_status};
use case::Scale;
use limits::Limits;
use machine::Machine;
use report::{Report, Row};

pub(crate) fn kernels(args: BenchKernelsArgs) -> Result<(), CliError> {
    backend::prepare(&args.device)?;
    let device = args.device.clone();
    backend::dispatch(&device, Measuring { args })
}

struct Measuring {
    args: BenchKernelsArgs,
}

impl Job for Measuring {
    type Output = ();

    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        let Self { args } = self;
        let scale = if args.quick { Scale::Quick } else { Scale::Full };
        // Without a fused body, both times would be of the reference.
        let fused = !matches!(route::<B>(), Route::Reference | Route::Forced);
        let beside = fused && !args.no_reference;
        let mut report = Report::new::<B>(&place, Machine::here());
        let say = |line: String| {
            if !args.json {
                return print(line);
            }
            print_status(line);
            Ok(())
        };
        say(report.heading())?;
        report.limits = match route::<B>() {
            Route::Device(_) => Limits::of_kernels::<B::InnerBackend>(scale, &place.device),
            _ => Limits::measure::<B>(scale, &place.device),
        };
        say(report.limits.table())?;
        say(Row::heading())?;
        let all = Operation::value_variants();
        let chosen = if args.only.is_empty() { all } else { &args.only };
        for operation in chosen {
            for mut case in operation.cases::<B>(scale, &place.device) {
                let bound = report.limits.of::<B>(&mut case, scale, &place.device);
                let row = Row::measure(case, scale.effort(), beside, bound);
                say(row.line())?;
                report.rows.push(row);
            }
        }
        if args.json {
            return print(report.json());
        }
        Ok(())
    }
}
