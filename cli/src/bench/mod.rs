//! Speed of fused operations on this machine, beside their references and the machine's limits.

mod args;
mod cases;
mod compare;
mod limits;
mod row;
mod timing;

pub(crate) use args::{BenchCommand, CompareArgs};
pub(crate) use cases::{Operation, Scale};
pub(crate) use compare::compare;

use fewshot::files;
use fewshot::hardware::{Calibration, Effort};
use fewshot::kernels::{Route, route};

use crate::hardware::calibration_text;
use crate::machine::{self, Machine};
use crate::prelude::*;
use args::{BenchKernelsArgs, BenchReportArgs, KernelsArgs};
use row::Row;
use timing::Repeats;

pub(crate) fn kernels(args: &BenchKernelsArgs) -> Result {
    backend::start(&args.kernels.device, args)
}

pub(crate) fn report(args: &BenchReportArgs) -> Result {
    // Measuring takes minutes.
    if let Some(folder) = args.out.as_ref().and_then(|path| path.parent())
        && !folder.as_os_str().is_empty()
        && !folder.is_dir()
    {
        return Err(failed!("{} is not a folder", folder.display()));
    }
    backend::start(&args.kernels.device, args)
}

impl Work for &BenchKernelsArgs {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        let Measured { machine, limits, rows, .. } =
            Measured::on(&self.kernels, &hardware, self.json)?;
        if !self.json {
            return Ok(());
        }
        let mut machine = json!(machine);
        machine["route"] = route::<Autodiff<B>>().to_string().into();
        print(json!({
            "machine": machine,
            "version": env!("CARGO_PKG_VERSION"),
            "backend": backend::name(hardware.info()),
            "device": backend::label(hardware.info()),
            "limits": limits,
            "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
        }))
    }
}

impl Work for &BenchReportArgs {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        let text = Measured::on(&self.kernels, &hardware, true)?.markdown(&hardware);
        match &self.out {
            None => print(text.trim_end()),
            Some(path) => files::replace(path, text.as_bytes())
                .map_err(|error| failed!("{}: {error}", path.display())),
        }
    }
}

struct Measured {
    machine: Machine,
    /// At the start: a checkout may move on meanwhile.
    commit: Option<String>,
    limits: Calibration,
    rows: Vec<Row>,
}

impl Measured {
    /// Measures all that is asked for. A table of it grows meanwhile, on standard error if `aside`.
    fn on<B: Backend>(
        args: &KernelsArgs,
        hardware: &HardwareManager<B>,
        aside: bool,
    ) -> Result<Self> {
        let (scale, device) = (args.measure.scale(), hardware.device());
        // Without a fused body, both times would be of the reference.
        let fused = !matches!(route::<Autodiff<B>>(), Route::Reference | Route::Forced);
        let compare = fused && !args.no_reference;
        let (machine, commit) = (Machine::here(), machine::commit());
        let (version, phrase) = (env!("CARGO_PKG_VERSION"), backend::phrase(hardware));
        tell(aside, format_args!("{machine}\nfewshot {version}, {phrase}\n"))?;
        let effort = scale.choose(Effort::Full, Effort::Quick);
        let limits = Calibration::measure::<B>(device, effort);
        tell(aside, calibration_text(&limits) + "\n")?;
        tell(aside, Row::heading())?;
        let mut rows = Vec::new();
        for operation in args.measure.operations() {
            for mut case in operation.cases::<Autodiff<B>>(scale, device) {
                let bound = limits::bound::<Autodiff<B>>(&limits, &mut case, scale, device);
                let row = Row::measure(case, Repeats::for_scale(scale), compare, bound);
                tell(aside, row.line())?;
                rows.push(row);
            }
        }
        Ok(Self { machine, commit, limits, rows })
    }

    fn markdown<B: Backend>(&self, hardware: &HardwareManager<B>) -> String {
        let phrase = backend::phrase(hardware);
        let (machine, version, date) = (&self.machine, env!("CARGO_PKG_VERSION"), machine::today());
        let commit = self.commit.as_ref().map_or_else(String::new, |at| format!(" at commit {at}"));
        let limits = calibration_text(&self.limits);
        let rows: String = self.rows.iter().map(Row::markdown).collect();
        let head = Row::MARKDOWN_HEAD;
        format!(
            "{machine}; fewshot {version}{commit}, {phrase}; {date}.\n\n\
             ```text\n{}\n```\n\n{head}{rows}",
            limits.trim_end()
        )
    }
}
