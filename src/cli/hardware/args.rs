use std::path::PathBuf;

use clap::{Args, Subcommand};
use fewshot::hardware::DevicePreference;

#[derive(Debug, Subcommand)]
pub(crate) enum HardwareCommand {
    /// One row for each device, the one that auto takes marked, and why others cannot be used.
    List(ListArgs),
    /// All that is known of a device.
    Info(InfoArgs),
    /// Measure matrix products by data type, copies, launches, and where an accelerator overtakes
    /// the processor.
    Bench(BenchArgs),
    /// What to paste into a bug report.
    Doctor(DoctorArgs),
    /// Try one platform; what the other commands run in a process of its own.
    #[command(hide = true)]
    Probe { platform: String },
}

/// Which machine is meant.
#[derive(Debug, Args)]
pub(crate) struct MachineArgs {
    /// A machine that `fewshot hardware list --json` described, in place of this one
    #[arg(long, value_name = "FILE")]
    pub(crate) inventory: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// The device to mark: auto, gpu, cpu, a platform or a device
    #[arg(long, default_value = "auto", value_name = "NAME")]
    pub(crate) device: DevicePreference,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// The device: auto, gpu, cpu, a platform or a device
    #[arg(default_value = "auto", value_name = "NAME")]
    pub(crate) device: DevicePreference,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Devices to measure, separated by commas [default: all that are not software renderers]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) devices: Vec<DevicePreference>,
    /// Tiny sizes, just to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
