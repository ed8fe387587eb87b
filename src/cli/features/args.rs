use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fewshot::data::Split;

use crate::cli::args::{DeviceArgs, count};
use crate::cli::data_spec::DataSpec;

pub(crate) const EMBED_HELP: &str = "\
The data is that of the checkpoint where nothing is said. A run folder stands for its best checkpoint, \
or its last one where no validation was made. Images are embedded upright, with batch-norm's \
running statistics.

The file has a tensor [n, d] a class, and says in its metadata what made it. Any program that \
reads safetensors can use it, and `fewshot eval-features` takes files of other programs.";

pub(crate) const EVAL_FEATURES_HELP: &str = "\
A file is .safetensors with a tensor [n, d] a class or, in a build with the feature parquet, .parquet \
with the columns embedding and class_name. All methods are tested on the same episodes. Those marked \
with * see all queries of an episode together, and are only to be compared with each other.

With --base-features, simpleshot and laplacian-shot take the mean of that file away first, as in \
their papers; a file may also bring such a mean itself.

--method all leaves out what must be trained on episodes first: matching, relation and feat.

With --json, standard output is one JSON object: features, classes, rows, length, base_mean (whether \
there is one), backend, device, route, and results, a row each of method, settings, ways, shots, queries, \
episodes, transductive, unbalanced (alpha, or null), seed, accuracy and ci95 (percent, 1.96 * std / \
sqrt(n)), episodes_per_s.";

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
    #[arg(value_name = "CHECKPOINT_OR_RUN")]
    pub(crate) checkpoint: PathBuf,
    /// File to write, .safetensors
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// Classes to embed
    #[arg(long, value_enum, default_value_t)]
    pub(crate) part: Part,
    /// Data to embed: glyphs, omniglot:DIR or folder:DIR
    #[arg(long, value_name = "SPEC")]
    pub(crate) data: Option<DataSpec>,
    /// Split of Omniglot: vinyals, finn or finn:SEED
    #[arg(long)]
    pub(crate) split: Option<Split>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct EvalFeaturesArgs {
    /// Features to test on, .safetensors or .parquet
    #[arg(long, value_name = "FILE")]
    pub(crate) features: PathBuf,
    /// Features of the base classes, of which the mean is taken
    #[arg(long, value_name = "FILE")]
    pub(crate) base_features: Option<PathBuf>,
    /// Methods, separated by commas, or all
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "all")]
    pub(crate) method: Vec<String>,
    /// Classes in an episode
    #[arg(long, value_name = "W", default_value_t = 5, value_parser = count(1..))]
    pub(crate) ways: usize,
    /// Labelled examples of each class, separated by commas
    #[arg(
        long,
        value_name = "K",
        value_delimiter = ',',
        default_value = "1,5",
        value_parser = count(1..)
    )]
    pub(crate) shots: Vec<usize>,
    /// Queries of each class
    #[arg(long, value_name = "Q", default_value_t = 15, value_parser = count(1..))]
    pub(crate) queries: usize,
    /// Spread queries unevenly over classes, by a Dirichlet distribution of this alpha [default: 2];
    /// a class may get none or all W * Q of them
    #[arg(
        long,
        value_name = "ALPHA",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = count(1..=1000)
    )]
    pub(crate) unbalanced: Option<usize>,
    /// Episodes
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = count(1..))]
    pub(crate) episodes: usize,
    /// Seed of the episodes
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Draw the accuracies as bars, .svg
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
