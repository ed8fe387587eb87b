use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use fewshot::episode::DataPlacement;
use fewshot::hardware::{Checkpointing, DevicePreference};

use super::{count, one_of};

/// Where to compute.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Backend or device: auto (the best of what `fewshot hardware list` finds), gpu, cpu, flex,
    /// ndarray, candle, cuda, rocm, wgpu, or one device as cuda:1
    #[arg(long, default_value = "auto", value_name = "NAME")]
    pub(crate) backend: DevicePreference,
    /// Number of the device among those of the backend [default: the best]
    #[arg(long, value_name = "N")]
    pub(crate) device: Option<usize>,
    /// Threads of the CPU backends [default: all cores]
    #[arg(long, value_name = "N", value_parser = count(1..=1024))]
    pub(crate) threads: Option<usize>,
}

/// Where the images of a dataset lie while an accelerator learns from them.
pub(super) fn placement() -> impl TypedValueParser<Value = DataPlacement> {
    let automatic = "On the device if they take at most a quarter of its free memory, or 1 GiB where \
                     that is not known";
    one_of([
        ("auto", automatic, DataPlacement::Auto),
        ("device", "On the device", DataPlacement::Device),
        ("host", "In host memory; episodes are uploaded", DataPlacement::Host),
    ])
}

/// Parser of the part of a network that is computed again in the backward pass.
pub(crate) fn checkpointing() -> impl TypedValueParser<Value = Checkpointing> {
    one_of([
        ("none", "Nothing", Checkpointing::Nothing),
        ("balanced", "What costs little", Checkpointing::Balanced),
        ("segments", "Every block of protonet's network", Checkpointing::Segments),
    ])
}

/// Statistics by which batch-norm normalises in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BatchNormRule {
    /// Running averages of training, as in the official code
    Running,
    /// The moments of each test episode (transductive): of a protonet support and queries together,
    /// of maml and its relatives apart
    Batch,
    /// The moments of the support and one query at a time (inductive), of maml and its relatives alone
    Support,
}
