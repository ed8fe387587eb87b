//! `fewshot hardware`.

mod args;
mod bench;
mod cache;
mod doctor;
mod list;
mod matrix;
mod models;

pub(crate) use args::HardwareCommand;
pub(crate) use bench::calibration_text;

use fewshot::hardware::Registry;

use super::error::Result;
use super::output::print;

pub(crate) fn run(command: HardwareCommand) -> Result {
    match command {
        HardwareCommand::List(args) => list::list(&args),
        HardwareCommand::Info(args) => list::info(&args),
        HardwareCommand::Estimate(args) => models::estimate(&args),
        HardwareCommand::Recommend(args) => models::recommend_models(&args),
        HardwareCommand::Matrix(args) => matrix::run(&args),
        HardwareCommand::Plan(args) => models::plan(&args),
        HardwareCommand::Bench(args) => bench::run(&args),
        HardwareCommand::Doctor { json } => doctor::run(json),
        HardwareCommand::Probe { platform } => print(Registry::built_in().answer(&platform)?),
    }
}
