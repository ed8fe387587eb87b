use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use fewshot::hardware::DevicePreference;

use super::{Operation, Scale};
use crate::args::{DeviceArgs, count};

const BENCH_HELP: &str = "\
Times are medians with quartiles, of the operation and of its reference in plain Burn operations in turns. \
The limits are measured first, as by `hardware bench`. The last column is the share of what bounds a row: \
on a processor the backend's fastest matrix product or a copy in host memory, measured again before the \
row, on an accelerator its launches, its arithmetic or its memory, whichever takes longest. GFLOP/s counts \
convolutions as direct ones, so the share can exceed 1 where Winograd's algorithm saves multiplications. A \
training step is episode, forward, backward and Adam of a prototypical network. Where no reference is \
timed, it would take minutes and gigabytes.

With --json, standard output of `kernels` is one JSON object: machine (cpu, cores, threads, os, route), version, backend, \
device, limits, and rows of operation, shape, variant, pass, ms, reference_ms (each with min, lower_quartile, \
median, upper_quartile, runs), speedup, gflop_per_s or gb_per_s, limit, launches (null on a processor), \
of_limit. The table goes to standard error.";

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Time every fused operation beside its reference and beside the machine's limits.
    #[command(after_long_help = BENCH_HELP, args_override_self = true)]
    Kernels(BenchKernelsArgs),
    /// Write what `kernels` measures as a table in Markdown, with machine, commit and date.
    #[command(after_long_help = BENCH_HELP, args_override_self = true)]
    Report(BenchReportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Two devices to run the same work on in turns, as flex,wgpu
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) compare: Vec<DevicePreference>,
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Threads of the CPU backends [default: all cores]
    #[arg(long, value_name = "N", value_parser = count(1..=1024))]
    pub(crate) threads: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchKernelsArgs {
    #[command(flatten)]
    pub(crate) kernels: KernelsArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchReportArgs {
    #[command(flatten)]
    pub(crate) kernels: KernelsArgs,
    /// File to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// Kernels to measure, and the device.
#[derive(Debug, Args)]
pub(crate) struct KernelsArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    /// Leave the references out, which take most of the time
    #[arg(long)]
    pub(crate) no_reference: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// Operations to measure, and their sizes.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// Operations to measure, separated by commas [default: all]
    #[arg(long, value_enum, value_name = "OPERATIONS", value_delimiter = ',')]
    only: Vec<Operation>,
    /// Measure tiny shapes, just to see that it works
    #[arg(long)]
    quick: bool,
}

impl MeasureArgs {
    pub(crate) fn scale(&self) -> Scale {
        if self.quick { Scale::Quick } else { Scale::Full }
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        match self.only.is_empty() {
            true => Operation::value_variants().to_vec(),
            false => self.only.clone(),
        }
    }
}
