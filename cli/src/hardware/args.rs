use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use fewshot::catalog::Method;
use fewshot::data::ImageShape;
use fewshot::episode::Protocol;
use fewshot::hardware::{Bytes, Checkpointing, DevicePreference, OptimizerKind};

use crate::args::{checkpointing, count, one_of};

#[derive(Debug, Subcommand)]
pub(crate) enum HardwareCommand {
    /// One row for each device, the one that auto takes marked, and why others cannot be used.
    List {
        /// The device to mark: auto, gpu, cpu, a platform or a device
        #[arg(long, default_value = "auto", value_name = "NAME")]
        device: DevicePreference,
        #[command(flatten)]
        machine: MachineArgs,
    },
    /// All that is known of a device.
    Info {
        /// The device: auto, gpu, cpu, a platform or a device
        #[arg(default_value = "auto", value_name = "NAME")]
        device: DevicePreference,
        #[command(flatten)]
        machine: MachineArgs,
    },
    /// Estimate the memory and time that training a model takes, line by line; fail if it does not fit.
    Estimate(EstimateArgs),
    /// The models for a task, best first: what fits, and how long a step takes.
    Recommend {
        #[command(flatten)]
        task: TaskArgs,
        #[command(flatten)]
        place: WhereArgs,
    },
    /// Find out by running them which models run on which devices, in which precision.
    Matrix(MatrixArgs),
    /// Place several models on devices.
    Plan(PlanArgs),
    /// Measure matrix products by data type, copies, launches, and where an accelerator overtakes
    /// the processor.
    Bench {
        /// Devices to measure, separated by commas [default: all that are not software renderers]
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        devices: Vec<DevicePreference>,
        /// Tiny sizes, just to see that it works
        #[arg(long)]
        quick: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the text to paste into a bug report.
    Doctor {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Try one platform; what the other commands run in a process of its own.
    #[command(hide = true)]
    Probe { platform: String },
}

/// The machine to answer for.
#[derive(Debug, Args)]
pub(crate) struct MachineArgs {
    /// A machine that `fewshot hardware list --json` described, in place of this one
    #[arg(long, value_name = "FILE")]
    pub(crate) inventory: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A device of a machine, and the part of its memory that may be used.
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

/// The task to learn, and the method.
#[derive(Debug, Args)]
pub(crate) struct TaskArgs {
    /// Ways, shots and queries a class
    #[arg(long, default_value = "5w1s15q", value_name = "TASK")]
    pub(crate) task: Protocol,
    /// Channels, height and width of the images, as 3x84x84 [default: the model's own, of recommend
    /// 1x28x28]
    #[arg(long, value_name = "CxHxW")]
    pub(crate) image: Option<ImageShape>,
    /// Learning method
    #[arg(long, default_value = "protonet", value_parser = one_of([
        ("protonet", "Prototypical network", (|_| Method::ProtoNet) as MethodOf),
        ("maml", "MAML of the second order", |steps| Method::Maml { steps }),
        ("maml-chain", "The same by the chain", |steps| Method::MamlChain { steps }),
        ("fomaml", "MAML of the first order", |steps| Method::FirstOrder { steps }),
        ("anil", "ANIL", |steps| Method::Anil { steps }),
    ]))]
    method: MethodOf,
    /// Inner steps of maml and its relatives
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = count(1..=1000))]
    inner_steps: usize,
}

/// A method by its number of inner steps.
type MethodOf = fn(usize) -> Method;

impl TaskArgs {
    pub(crate) fn method(&self) -> Method {
        (self.method)(self.inner_steps)
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
    /// Optimizer of the parameters
    #[arg(long, default_value = "adam", value_parser = one_of([
        ("sgd", "Gradient descent", OptimizerKind::Sgd),
        ("momentum", "Gradient descent with momentum", OptimizerKind::Momentum),
        ("adam", "Adam", OptimizerKind::Adam),
        ("adamw", "AdamW", OptimizerKind::AdamW),
        ("lamb", "LAMB", OptimizerKind::Lamb),
    ]))]
    pub(crate) optimizer: OptimizerKind,
    /// Values to compute again in the backward pass rather than keep: none, balanced (what costs
    /// little) or segments (of protonet, every block of the network)
    #[arg(long, value_name = "WHAT", default_value = "none", value_parser = checkpointing())]
    pub(crate) grad_checkpoint: Checkpointing,
    /// Run steps of 2, 3 and 4 tasks, and fit a line to what they take, in place of formulas;
    /// with an inner loop, a task alone takes less than that
    #[arg(long, conflicts_with = "inventory")]
    pub(crate) measure: bool,
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
    pub(crate) models: Vec<WithAmount<String>>,
    /// Devices to place them on, separated by commas, with their memory where that is not what is
    /// free: cuda:0,vulkan:0=4GiB; `estimate` shows whether one can hold a model's largest tensor
    /// [default: accelerators and the processor]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) devices: Vec<WithAmount<DevicePreference>>,
    /// Share of each device's memory that stays free
    #[arg(long, default_value_t = 0.1, value_name = "SHARE")]
    pub(crate) keep_free: f64,
    /// Values to compute again in the backward pass rather than keep: none, balanced (what costs
    /// little) or segments (of protonet, every block of the network)
    #[arg(long, value_name = "WHAT", default_value = "none", value_parser = checkpointing())]
    pub(crate) grad_checkpoint: Checkpointing,
    #[command(flatten)]
    pub(crate) task: TaskArgs,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

/// A model or device, and its memory if given: `NAME` or `NAME=AMOUNT`.
#[derive(Clone, Debug)]
pub(crate) struct WithAmount<T> {
    pub(crate) name: T,
    pub(crate) bytes: Option<Bytes>,
}

impl<T: FromStr<Err: Display>> FromStr for WithAmount<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, bytes) = match text.split_once('=') {
            None => (text, None),
            Some(("", _)) => return Err("a name is missing before =".to_owned()),
            Some((name, bytes)) => (name, Some(bytes.parse()?)),
        };
        Ok(Self { name: name.parse().map_err(|error: T::Err| error.to_string())?, bytes })
    }
}
