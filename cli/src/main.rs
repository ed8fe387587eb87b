//! The command `fewshot`: parses, calls the library, prints.
#![forbid(unsafe_code)]
#![recursion_limit = "256"]

mod args;
mod backend;
mod bench;
mod checkpoint;
mod data_spec;
mod download;
mod episodes;
mod error;
mod eval;
mod features;
mod hardware;
mod info;
mod line;
mod machine;
mod method;
mod output;
mod pack;
mod pictures;
mod plasticity;
mod progress;
mod report;
mod reproduce;
mod runs;
mod settings;
mod sinusoids;
mod train;
mod training;
mod warnings;
mod world;

use std::hint::black_box;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use fewshot::hardware::{CountingAllocator, keep_compiled_kernels, log_launches};
use fewshot_kernels::keep_freed_memory;
use mimalloc::MiMalloc;

use bench::BenchCommand;
use error::{Result, failed};
use line::{Command, DataCommand, Line, PlasticityCommand};

/// Names that most files of the command need.
mod prelude {
    pub(crate) use std::path::{Path, PathBuf};

    pub(crate) use burn::backend::Autodiff;
    pub(crate) use burn::tensor::backend::{AutodiffBackend, Backend};
    pub(crate) use fewshot::hardware::{HardwareManager, Work};
    pub(crate) use serde_json::{Value, json};

    pub(crate) use crate::backend;
    pub(crate) use crate::error::{CliError, Result, failed, usage};
    pub(crate) use crate::output::{known, lower, print, print_status, table, tell};
    pub(crate) use crate::report::{join, rounded};
}

/// Counts the processor's memory for the hardware commands and `peak_memory`. On an accelerator one thread frees
/// what another has allocated, hundreds of times a step, which mimalloc does without locks.
#[global_allocator]
static ALLOCATOR: CountingAllocator<MiMalloc> = CountingAllocator::over(MiMalloc);

fn main() -> ExitCode {
    keep_freed_memory();
    let line = Line::parse();
    warnings::install();
    let Some(command) = line.command else {
        let _ = Line::command().print_help();
        return ExitCode::SUCCESS;
    };
    match &command {
        Command::Bench { command: Some(BenchCommand::Kernels(_)), .. } => log_launches(),
        _ => keep_compiled_kernels(),
    };
    match check_memory().and_then(|()| run(command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::print_error(&error);
            ExitCode::from(error.code())
        }
    }
}

/// Memory without which nothing runs.
const LEAST_MEMORY: usize = 64 << 20;

/// Where the system refuses memory, a program would later abort in the middle of its work.
fn check_memory() -> Result {
    let mut probe = Vec::<u8>::new();
    let given = probe.try_reserve_exact(LEAST_MEMORY);
    // Otherwise the compiler may leave the allocation out.
    black_box(&probe);
    given.map_err(|_| failed!("the system refuses {} MiB of memory", LEAST_MEMORY >> 20))
}

fn run(command: Command) -> Result {
    match command {
        Command::Train(args) => train::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Runs { command } => runs::run(command),
        Command::Embed(args) => features::embed(&args),
        Command::Adapt(args) => pictures::adapt(&args),
        Command::Predict(args) => pictures::predict(&args),
        #[cfg(feature = "serve")]
        Command::Serve(args) => pictures::serve(&args),
        Command::Export(args) => pictures::export(&args),
        Command::Backbones { command } => pictures::backbones(command),
        Command::Data { command: DataCommand::Omniglot { to } } => download::omniglot(&to),
        Command::Data { command: DataCommand::Pack(args) } => pack::run(&args),
        Command::Data { command: DataCommand::Episodes(args) } => episodes::run(&args),
        Command::Data { command: DataCommand::Info { spec, split, read } } => {
            info::run(&spec, split, read)
        }
        Command::Hardware { command } => hardware::run(command),
        Command::Bench { command: Some(BenchCommand::Kernels(args)), .. } => bench::kernels(&args),
        Command::Bench { command: Some(BenchCommand::Report(args)), .. } => bench::report(&args),
        Command::Bench { command: None, compare } => bench::compare(&compare),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Plasticity { command: PlasticityCommand::Run(args) } => plasticity::run(&args),
    }
}
