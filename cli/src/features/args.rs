use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fewshot::data::Split;

use crate::args::{DeviceArgs, ReadArgs, count, first_given};
use crate::data_spec::{DataSpec, image_specs};

pub(crate) const EMBED_HELP: &str = "\
The data is by default that of the checkpoint. A run folder stands for its best checkpoint, or its last one \
if there was no validation. Images are embedded upright, with batch-norm's running statistics.

The file has a tensor [n, d] a class, and metadata on what made it. Any program that reads safetensors can \
use it, and `fewshot eval --features` takes files of other programs.";

/// Which classes of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Those to report an accuracy on
    #[default]
    Test,
    /// Those to choose by
    Validation,
    /// Those that were learned from: the base classes
    Train,
}

#[derive(Debug, Args)]
pub(crate) struct EmbedArgs {
    /// A checkpoint file or a run folder
    #[arg(value_name = "CHECKPOINT_OR_RUN", required_unless_present = "backbone")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// File to write, .safetensors
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// A pretrained network instead of a run, and the file of its weights, as `adapt` takes them
    #[arg(
        long,
        value_name = "NAME[:FILE]",
        requires = "pictures",
        conflicts_with_all = ["checkpoint", "part", "data", "split"]
    )]
    pub(crate) backbone: Option<String>,
    /// Folder with a folder of pictures for each class, for --backbone
    #[arg(long, value_name = "DIR", requires = "backbone")]
    pub(crate) pictures: Option<PathBuf>,
    /// Classes to embed
    #[arg(long, value_enum, default_value_t)]
    pub(crate) part: Part,
    #[arg(long, value_name = "SPEC", help = format!("Data to embed: {}", image_specs()))]
    pub(crate) data: Option<DataSpec>,
    /// Split of Omniglot: vinyals, finn or finn:SEED
    #[arg(long)]
    pub(crate) split: Option<Split>,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// A test of methods on features instead of a run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Features instead of a run")]
pub(crate) struct FeatureArgs {
    /// Features to test methods on, .safetensors or .parquet
    #[arg(long, value_name = "FILE", conflicts_with = "checkpoint")]
    pub(crate) features: Option<PathBuf>,
    /// Features of the base classes, of which the mean is taken
    #[arg(long, value_name = "FILE")]
    pub(crate) base_features: Option<PathBuf>,
    /// Spread queries unevenly over classes, by a Dirichlet distribution of this alpha [default: 2];
    /// a class may get none or all of them
    #[arg(
        long,
        value_name = "ALPHA",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = count(1..=1000)
    )]
    pub(crate) unbalanced: Option<usize>,
    /// Draw the accuracies as bars, .svg
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

impl FeatureArgs {
    /// The first option that was given beside the features themselves.
    pub(crate) fn given(&self) -> Option<String> {
        // Clap waives what an option requires where that conflicts with a run.
        first_given!(self, base_features, unbalanced, plot)
    }
}
