//! The command line: one file a command, and what several commands share.

mod bench;
mod device;
mod eval;
mod inner;
mod method;
mod read;
mod train;

use std::ops::RangeBounds;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use clap::{Parser, Subcommand};
use fewshot::data::Split;

pub(crate) use bench::{BenchCommand, BenchKernelsArgs, BenchReportArgs, CompareArgs, KernelsArgs};
pub(crate) use device::{BatchNormRule, DeviceArgs, checkpointing};
pub(crate) use eval::EvalArgs;
pub(crate) use inner::InnerArgs;
pub(crate) use method::Method;
pub(crate) use read::ReadArgs;
pub(crate) use train::{ClassicalArgs, TrainArgs, TrainOn};

use super::data_spec::{DataSpec, specs};
use super::features::{EMBED_HELP, EmbedArgs};
use super::hardware::HardwareCommand;
use super::pictures::{ADAPT_HELP, AdaptArgs, BackbonesCommand, PREDICT_HELP, PredictArgs};
#[cfg(feature = "serve")]
use super::pictures::{SERVE_HELP, ServeArgs};
use super::plasticity::{PlasticityRunArgs, RUN_HELP};
use super::reproduce::{REPRODUCE_HELP, ReproduceArgs};
use super::runs::{RUNS_HELP, RunsCommand};
use eval::EVAL_HELP;
use train::TRAIN_HELP;

/// Few-shot and meta-learning on any Burn backend.
#[derive(Debug, Parser)]
#[command(name = "fewshot", version, max_term_width = 100)]
pub(crate) struct Line {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a learner, then test it on classes it has never seen.
    #[command(after_long_help = TRAIN_HELP, args_override_self = true)]
    Train(Box<TrainArgs>),
    /// Test the learner in a checkpoint or run folder, or methods on a file of features.
    #[command(after_long_help = EVAL_HELP, args_override_self = true)]
    Eval(Box<EvalArgs>),
    /// List training runs, look at one, compare several or draw them.
    #[command(after_long_help = RUNS_HELP)]
    Runs {
        #[command(subcommand)]
        command: RunsCommand,
    },
    /// Write the embeddings of a dataset by a trained encoder to a file of features.
    #[command(after_long_help = EMBED_HELP, args_override_self = true)]
    Embed(EmbedArgs),
    /// Train and test what a paper reports, by a recipe.
    #[command(after_long_help = REPRODUCE_HELP, args_override_self = true)]
    Reproduce(ReproduceArgs),
    /// Learn classes from a folder of pictures, with a pretrained network or that of a run.
    #[command(after_long_help = ADAPT_HELP, args_override_self = true)]
    Adapt(Box<AdaptArgs>),
    /// Classify pictures by what `adapt` has learned.
    #[command(after_long_help = PREDICT_HELP, args_override_self = true)]
    Predict(PredictArgs),
    /// Serve a page where pictures are classified and classes are taught.
    #[cfg(feature = "serve")]
    #[command(after_long_help = SERVE_HELP, args_override_self = true)]
    Serve(ServeArgs),
    /// List pretrained networks, or download their weights.
    Backbones {
        #[command(subcommand)]
        command: BackbonesCommand,
    },
    /// Get data, or look at it.
    Data {
        #[command(subcommand)]
        command: DataCommand,
    },
    /// Let layers learn by local rules.
    Plasticity {
        #[command(subcommand)]
        command: PlasticityCommand,
    },
    /// Find devices, and what fits on them.
    Hardware {
        #[command(subcommand)]
        command: HardwareCommand,
    },
    /// Measure how fast this machine is, or with --compare the same work on two backends.
    #[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
    Bench {
        #[command(subcommand)]
        command: Option<BenchCommand>,
        #[command(flatten)]
        compare: CompareArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlasticityCommand {
    /// Run a hierarchy of plastic layers on generated inputs.
    #[command(after_long_help = RUN_HELP, args_override_self = true)]
    Run(Box<PlasticityRunArgs>),
}

#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Download Omniglot and the lists of the Vinyals split.
    ///
    /// Set FEWSHOT_OMNIGLOT_MIRROR to take all files from another address; there they lie as they
    /// do in DIR.
    Omniglot {
        /// Folder to put the files in; those already there and whole are kept.
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
    /// Tell what a dataset holds.
    Info {
        #[arg(help = specs("One of"))]
        spec: DataSpec,
        /// Split of Omniglot: vinyals, finn or finn:SEED
        #[arg(long, default_value = "vinyals")]
        split: Split,
        #[command(flatten)]
        read: ReadArgs,
    },
}

/// The first of these options that is not at its default, as it is written on the command line.
macro_rules! first_given {
    ($args:expr, $($field:ident),+) => {
        [$((stringify!($field), $crate::args::is_given(&$args.$field))),+]
            .into_iter()
            .find(|(_, given)| *given)
            .map(|(field, _)| format!("--{}", field.replace('_', "-")))
    };
}

pub(crate) use first_given;

pub(crate) fn is_given<T: Default + PartialEq>(option: &T) -> bool {
    *option != T::default()
}

/// One of these values by its name, each with a line of help.
pub(crate) fn one_of<T: Clone + Send + Sync + 'static, const N: usize>(
    values: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let named = values.iter().map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(named.collect::<Vec<_>>()).map(move |given| {
        let value = values.iter().find(|(name, ..)| *name == given);
        value.expect("the parser takes no other name").2.clone()
    })
}

/// A number of something within `range`.
pub(super) fn count(range: impl RangeBounds<u64>) -> impl TypedValueParser<Value = usize> {
    steps(range).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
}

/// A number of steps within `range`.
pub(super) fn steps(range: impl RangeBounds<u64>) -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(range)
}
