use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use fewshot::episode::Protocol;
use fewshot::hardware::{Bytes, DevicePreference, HardwareError, OptimizerKind};

use crate::cli::args::count;
use crate::cli::train::GradCheckpoint;

#[derive(Debug, Subcommand)]
pub(crate) enum HardwareCommand {
    /// One row for each device, the one that auto takes marked, and why others cannot be used.
    List(ListArgs),
    /// All that is known of a device.
    Info(InfoArgs),
    /// What training a model takes of memory and time, line by line; fails if it does not fit.
    Estimate(EstimateArgs),
    /// The models for a task, best first: what fits, and how long a step takes.
    Recommend(RecommendArgs),
    /// Which model runs where, in which precision, found by running it.
    Matrix(MatrixArgs),
    /// Which of several models goes on which device.
    Plan(PlanArgs),
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

/// Which device, of which machine, and what of its memory.
#[derive(Debug, Args)]
pub(crate) struct WhereArgs {
    /// The device: auto, gpu, cpu, a platform or a device
    #[arg(long, default_value = "auto", value_name = "NAME")]
    pub(crate) device: DevicePreference,
    /// Memory that may be used, as 8GiB [default: what is free]
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) budget: Option<Bytes>,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

/// What is to be learned, and how.
#[derive(Debug, Args)]
pub(crate) struct TaskArgs {
    /// Ways, shots and queries a class
    #[arg(long, default_value = "5w1s15q", value_name = "TASK")]
    pub(crate) task: Protocol,
    /// Channels, height and width of the images, as 3x84x84 [default: the model's own, of recommend
    /// 1x28x28]
    #[arg(long, value_name = "CxHxW")]
    pub(crate) image: Option<Image>,
    /// How the model learns
    #[arg(long, value_enum, default_value = "protonet")]
    pub(crate) method: MethodName,
    /// Inner steps of maml and its relatives
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = count(1..=1000))]
    pub(crate) inner_steps: usize,
}

impl Default for TaskArgs {
    /// What the options are where nothing is said.
    fn default() -> Self {
        Self {
            task: Protocol::new(5, 1),
            image: None,
            method: MethodName::Protonet,
            inner_steps: 1,
        }
    }
}

/// A shape of images.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image(pub(crate) [usize; 3]);

impl FromStr for Image {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sizes = text.split('x').map(str::parse).collect::<Result<Vec<usize>, _>>();
        let image = sizes.ok().and_then(|sizes| <[usize; 3]>::try_from(sizes).ok());
        // No encoder here is for larger ones.
        let possible = |[c, h, w]: &[usize; 3]| {
            (1..=1024).contains(c) && (1..=4096).contains(h) && (1..=4096).contains(w)
        };
        image.filter(possible).map(Self).ok_or_else(|| {
            "write CHANNELSxHEIGHTxWIDTH, as 3x84x84, up to 1024x4096x4096".to_owned()
        })
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [channels, height, width] = self.0;
        write!(f, "{channels}x{height}x{width}")
    }
}

/// What can be estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MethodName {
    /// Prototypical network
    Protonet,
    /// MAML of the second order, by the chain
    Maml,
    /// MAML of the first order
    Fomaml,
    /// ANIL
    Anil,
}

/// What moves the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OptimizerName {
    /// Gradient descent
    Sgd,
    /// Gradient descent with momentum
    Momentum,
    /// Adam
    Adam,
    /// AdamW
    Adamw,
    /// LAMB
    Lamb,
}

impl From<OptimizerName> for OptimizerKind {
    fn from(name: OptimizerName) -> Self {
        match name {
            OptimizerName::Sgd => Self::Sgd,
            OptimizerName::Momentum => Self::Momentum,
            OptimizerName::Adam => Self::Adam,
            OptimizerName::Adamw => Self::AdamW,
            OptimizerName::Lamb => Self::Lamb,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct EstimateArgs {
    /// The model, by a name that `fewshot hardware recommend` shows
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: String,
    /// Tasks in a step
    #[arg(long, default_value_t = 1, value_name = "T", value_parser = count(1..=1_000_000))]
    pub(crate) tasks: usize,
    /// What moves the parameters
    #[arg(long, value_enum, default_value = "adam")]
    pub(crate) optimizer: OptimizerName,
    /// What is computed again in the backward pass rather than kept: none, balanced (what costs
    /// little) or segments (of protonet, every block of the network)
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = GradCheckpoint::None)]
    pub(crate) grad_checkpoint: GradCheckpoint,
    /// Run steps of 2, 4 and 6 tasks, and draw a line through what they take, in place of formulas;
    /// with an inner loop, a task alone takes less than that
    #[arg(long, conflicts_with = "inventory")]
    pub(crate) measure: bool,
    #[command(flatten)]
    pub(crate) task: TaskArgs,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RecommendArgs {
    #[command(flatten)]
    pub(crate) task: TaskArgs,
    #[command(flatten)]
    pub(crate) place: WhereArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MatrixArgs {
    /// Models, separated by commas [default: all]
    #[arg(long, value_name = "MODELS", value_delimiter = ',')]
    pub(crate) models: Vec<String>,
    /// Devices, separated by commas [default: all that are there]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) devices: Vec<DevicePreference>,
    /// Print a table in Markdown
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Models by name, training on one task at a time, or anything with its memory: NAME=8GiB
    #[arg(required = true, value_name = "MODEL")]
    pub(crate) models: Vec<Wanted>,
    /// Devices to place them on, separated by commas, with their memory where that is not what is
    /// free: cuda:0,vulkan:0=4GiB; whether one can hold a model's largest tensor, estimate tells
    /// [default: accelerators and the processor]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) devices: Vec<Room>,
    /// Share of each device's memory that stays free
    #[arg(long, default_value_t = 0.1, value_name = "SHARE")]
    pub(crate) keep_free: f64,
    /// What is computed again in the backward pass rather than kept: none, balanced (what costs
    /// little) or segments (of protonet, every block of the network)
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = GradCheckpoint::None)]
    pub(crate) grad_checkpoint: GradCheckpoint,
    #[command(flatten)]
    pub(crate) task: TaskArgs,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

/// A model to place.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) name: String,
    pub(crate) bytes: Option<Bytes>,
}

/// A device to place models on, and its memory where that is not what is free.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    pub(crate) device: DevicePreference,
    pub(crate) bytes: Option<Bytes>,
}

/// `NAME` or `NAME=AMOUNT`.
fn with_amount(text: &str) -> Result<(&str, Option<Bytes>), String> {
    match text.split_once('=') {
        None => Ok((text, None)),
        Some((name, bytes)) => Ok((name, Some(bytes.parse()?))),
    }
}

impl FromStr for Room {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, bytes) = with_amount(text)?;
        let device = name.parse().map_err(|error: HardwareError| error.to_string())?;
        Ok(Self { device, bytes })
    }
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match with_amount(text)? {
            ("", _) => Err("a model needs a name".to_owned()),
            (name, bytes) => Ok(Self { name: name.to_owned(), bytes }),
        }
    }
}
