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

use crate::prelude::*;

pub(crate) fn run(command: HardwareCommand) -> Result {
    match command {
        HardwareCommand::List { device, machine } => list::list(&device, &machine),
        HardwareCommand::Info { device, machine } => list::info(&device, &machine),
        HardwareCommand::Estimate(args) => models::estimate(&args),
        HardwareCommand::Recommend { task, place } => models::recommend_models(&task, &place),
        HardwareCommand::Matrix(args) => matrix::run(&args),
        HardwareCommand::Plan(args) => models::plan(&args),
        HardwareCommand::Bench { devices, quick, json } => bench::run(&devices, quick, json),
        HardwareCommand::Doctor { json } => doctor::run(json),
        HardwareCommand::Probe { platform } => print(Registry::built_in().answer(&platform)?),
    }
}
