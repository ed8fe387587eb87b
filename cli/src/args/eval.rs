use clap::{Args, ValueEnum};
use fewshot::data::Split;
use fewshot::episode::DataPlacement;

use super::device::placement;
use super::{BatchNormRule, DeviceArgs, ReadArgs, SamplingArgs, TestEpisodes, count, first_given};
use crate::data_spec::{DataSpec, specs};
use crate::method::Method;
use crate::prelude::*;

pub(crate) const EVAL_HELP: &str = "\
The data, the size of the episodes and the seed are by default those of the checkpoint. A run folder stands \
for its best checkpoint, or its last one if there was no validation. Episodes come from the test classes.

With --json, standard output is one JSON object: accuracy and ci95 (percent, 1.96 * std / sqrt(n)), of \
sinusoids mse_after and mse_ci95_after by number of steps in their place, steps, eval_episodes_per_s (of \
episodes), backend, device, route, inner (null without inner loop), protocol (its ways, shots and queries null \
where they differ; sampling is fixed, varied or listed), seed (null of a list), checkpoint, of images \
data_on (device or host: where they lie).

With --features, methods are tested on a file instead: .safetensors with a tensor [n, d] a class, or one \
and the labels of its rows in the metadata; .npy with --labels; .npz with an array a class, or embeddings and labels; .csv with a \
first line of names, a column label and a column for each value; or, in a build with the feature parquet, .parquet with the \
columns embedding and class_name. All methods are tested on \
the same episodes. Those marked with * see all queries of an episode together, and are only to be compared \
with each other. With --base-features, simpleshot and laplacian-shot first subtract the mean of that file, as \
in their papers; a file may also contain such a mean itself. --method all leaves out relation, feat and leo, \
which have weights that only episodes train. The JSON object has features, classes, rows, length, base_mean \
(whether there is one), backend, device, route, and results, a row each of method, settings, ways, shots, \
queries, sampling, episodes, transductive, unbalanced (alpha, or null), seed, accuracy, ci95, episodes_per_s.";

/// A test of methods on features instead of a run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Features instead of a run")]
pub(crate) struct FeatureArgs {
    /// Features to test methods on, .safetensors, .npy, .npz, .csv or .parquet
    #[arg(long, value_name = "FILE", conflicts_with = "checkpoint")]
    pub(crate) features: Option<PathBuf>,
    /// Labels of the rows of --features where their file has none, one a line
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
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
        first_given!(self, labels, base_features, unbalanced, plot)
    }
}

#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// A checkpoint file or a run folder
    #[arg(value_name = "CHECKPOINT_OR_RUN", required_unless_present = "features")]
    pub(crate) checkpoint: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) features: FeatureArgs,
    /// A method on embeddings, to be put on the encoder of the run [default: the run's]; with --features
    /// all, or several separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) method: Vec<String>,
    #[arg(long, value_name = "SPEC", conflicts_with = "features", help = specs("Data to test on"))]
    pub(crate) data: Option<DataSpec>,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    /// Split of Omniglot: vinyals, finn or finn:SEED
    #[arg(long, conflicts_with = "features")]
    pub(crate) split: Option<Split>,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Classes in an episode [default: the run's; with --features 5]
    #[arg(long, value_parser = count(1..))]
    pub(crate) ways: Option<usize>,
    /// Labelled examples of each class, or points of a sinusoid [default: the run's]; with --features
    /// several numbers separated by commas [default: 1,5]
    #[arg(long, value_delimiter = ',', value_parser = count(1..))]
    pub(crate) shots: Vec<usize>,
    /// Queries of each class, or points of a sinusoid [default: the run's; with --features 15]
    #[arg(long, value_parser = count(1..))]
    pub(crate) queries: Option<usize>,
    /// Episodes: so many, or those of a list, .jsonl or .csv, as `fewshot data episodes` writes it [default:
    /// 1000; with --features 10000]
    #[arg(long, value_name = "N|FILE")]
    pub(crate) episodes: Option<TestEpisodes>,
    /// Seed of the episodes [default: the run's; with --features 1]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Statistics by which batch-norm normalises [default: running; of maml and its relatives batch]
    #[arg(long, visible_alias = "bn", value_enum, conflicts_with = "features")]
    pub(crate) batch_norm: Option<BatchNormRule>,
    /// Average the probabilities of N views of each episode: the images as they are, and N - 1 augmented as in the run's
    /// training [default: 1]
    #[arg(long, value_name = "N", value_parser = count(1..=1000), conflicts_with = "features")]
    pub(crate) test_augment: Option<usize>,
    /// Inner steps of maml and its relatives
    #[arg(long, value_name = "N", value_parser = count(0..=1000), conflicts_with = "features")]
    pub(crate) eval_inner_steps: Option<usize>,
    /// Examples in an inner step of reptile
    #[arg(long, value_name = "N", value_parser = count(1..=65_536), conflicts_with = "features")]
    pub(crate) eval_inner_batch: Option<usize>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Where the images lie while an accelerator is tested; the CPU has them in host memory
    #[arg(long, default_value = "auto", value_parser = placement(), conflicts_with = "features")]
    pub(crate) data_on: DataPlacement,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl EvalArgs {
    /// Labelled examples of each class in a test of a run.
    pub(crate) fn shots(&self) -> Result<Option<usize>> {
        one("--shots", &self.shots).map(|shots| shots.copied())
    }

    /// The method to be put on the encoder of a run.
    pub(crate) fn method(&self) -> Result<Option<Method>> {
        let known = |name: &String| {
            Method::from_str(name, false).map_err(|_| {
                let known: Vec<_> =
                    Method::value_variants().iter().map(Method::to_string).collect();
                usage!("no method {name:?}: there are {}", known.join(", "))
            })
        };
        one("--method", &self.method)?.map(known).transpose()
    }

    /// Tasks of a test that are no images.
    pub(crate) fn tasks(&self) -> Result<usize> {
        self.episodes.as_ref().map_or(Ok(1000), TestEpisodes::count)
    }

    /// The list of the episodes of a test, if there is one.
    pub(crate) fn list(&self) -> Option<&Path> {
        self.episodes.as_ref().and_then(TestEpisodes::list)
    }
}

fn one<'a, T>(option: &str, given: &'a [T]) -> Result<Option<&'a T>> {
    match given {
        [] => Ok(None),
        [value] => Ok(Some(value)),
        _ => Err(usage!("several values of {option} are for --features")),
    }
}
