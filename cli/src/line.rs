//! The command line.

use clap::{Parser, Subcommand};
use fewshot::data::Split;

use crate::args::{
    AUGMENT_HELP, EPISODES_HELP, EVAL_HELP, EpisodeListArgs, EvalArgs, PACK_HELP, PackArgs,
    ReadArgs, TRAIN_HELP, TrainArgs,
};
use crate::bench::{BenchCommand, CompareArgs};
use crate::data_spec::{DataSpec, specs};
use crate::features::{EMBED_HELP, EmbedArgs};
use crate::hardware::HardwareCommand;
use crate::pictures::{
    ADAPT_HELP, AdaptArgs, BackbonesCommand, EXPORT_HELP, ExportArgs, PREDICT_HELP, PredictArgs,
};
#[cfg(feature = "serve")]
use crate::pictures::{SERVE_HELP, ServeArgs};
use crate::plasticity::{PlasticityRunArgs, RUN_HELP};
use crate::prelude::*;
use crate::reproduce::{REPRODUCE_HELP, ReproduceArgs};
use crate::runs::{RUNS_HELP, RunsCommand};

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
    #[command(after_long_help = [TRAIN_HELP, AUGMENT_HELP].join("\n\n"), args_override_self = true)]
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
    /// Write a model or a network as an ONNX file, for other programs.
    #[command(after_long_help = EXPORT_HELP, args_override_self = true)]
    Export(ExportArgs),
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
    /// Decode the pictures of a dataset once, into one file that trains without holding them in memory.
    #[command(after_long_help = PACK_HELP, args_override_self = true)]
    Pack(PackArgs),
    /// Write down the episodes of a test, for others to test on the same.
    #[command(after_long_help = EPISODES_HELP, args_override_self = true)]
    Episodes(Box<EpisodeListArgs>),
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
