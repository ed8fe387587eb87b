//! `fewshot hardware`.

mod args;
mod bench;
mod doctor;
mod list;

pub(crate) use args::HardwareCommand;

use fewshot::hardware::Registry;

use super::error::CliError;
use super::output::print;

pub(crate) fn run(command: HardwareCommand) -> Result<(), CliError> {
    match command {
        HardwareCommand::List(args) => list::list(&args),
        HardwareCommand::Info(args) => list::info(&args),
        HardwareCommand::Bench(args) => bench::run(&args),
        HardwareCommand::Doctor(args) => doctor::run(&args),
        HardwareCommand::Probe { platform } => print(Registry::built_in().answer(&platform)?),
    }
}
