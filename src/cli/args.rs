use std::ops::RangeBounds;
use std::path::PathBuf;

use clap::builder::{RangedU64ValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use fewshot::data::Split;
use fewshot::episode::DataPlacement;
use fewshot::hardware::{Bytes, DevicePreference};
use fewshot::metric::Metric;
use serde::{Deserialize, Serialize};

use super::bench::Operation;
use super::data_spec::DataSpec;
use super::error::CliError;
use super::features::{EMBED_HELP, EmbedArgs, FeatureArgs};
use super::hardware::HardwareCommand;
use super::plasticity::{PlasticityRunArgs, RUN_HELP};
use super::train::ScaleArgs;

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
    /// Write the embeddings of a dataset by a trained encoder to a file of features.
    #[command(after_long_help = EMBED_HELP, args_override_self = true)]
    Embed(EmbedArgs),
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

const TRAIN_HELP: &str = "\
Without options: a prototypical network on generated glyphs, 5-way 1-shot, on the best device.

A step is one optimizer step, on --meta-batch episodes. Training episodes have --train-ways etc., \
test episodes --ways etc. The best validation chooses the learner that is tested on test classes, \
but by maml and its relatives with running batch-norm statistics.

simpleshot, logistic, baseline, baseline++ and finetune learn from few examples on top of an encoder \
that was trained as a classifier of all training classes (--train classify); matching to meta-opt-net are \
trained on episodes and, but for relation, feat and leo, classically if told to. `fewshot eval RUN --method NAME` puts any of them, and those \
that see all queries, on the encoder of a run.

maml and its relatives adapt a linear layer on four convolution blocks: with strides and an \
average for images of at most 32 pixels, as in the MAML paper on Omniglot, else with max-pools \
and 32 channels, as on miniImageNet. Batch-norm takes the images at hand, so their tests are \
transductive unless --bn support is said.

Where nothing is said, inner rate, inner steps in training and test, queries a class in training \
and episodes in a step are

                images up to 32 pixels   larger images            sinusoids
maml            0.4    1   3  K   32     0.01   5  10  15   4     0.001  1   1  K   25
maml++          0.1    5   5  K    8     0.01   5   5  15   2     0.001  5   5  K   25
proto-maml      0.01   1   3  K   32     0.01   5  10  15   4
imaml           0.1   16  16  K   32     0.1   16  16  15   4     0.1   16  16  K   25
cavia           1      2   2  15  16     1      2   2  15  16     1      1   1  K   25
reptile         0.001  5  50  5    5     0.001  8  50   7   5     0.01  10  10  K   25

with K as many as shots, and the other methods as maml. Reptile learns from support and queries \
alike, by default 5 and 5, of larger images 8 and 7; its outer step is Adam's. maml++ needs more \
than its --multi-step-loss steps to end its annealing.

--data sinusoid is the regression of the MAML paper: maml and its relatives but proto-maml fit \
sine waves from a few points with a network of 1-40-40-1. The test tells the squared error after \
0, 1, 5 and 10 steps, and adapted.svg in the run folder shows the curves of two waves.

With --json, standard output is one JSON object: accuracy and ci95 (percent, 1.96 * std / \
sqrt(n)), of sinusoids mse_after and mse_ci95_after by number of steps in their place (null \
where a task diverged), steps, \
train_episodes_per_s, tasks_per_s (the same), eval_episodes_per_s (of episodes), peak_rss_mb (of \
the process, null where it is not known), backend, device, route, inner (null without inner \
loop), protocol, seed, run, precision, loss_scale (null but in f16), skipped_steps (that overflowed in \
f16), replicas (devices of all processes), data_on (device or host: where images lie), phase_ms (of a \
step of this process: data, forward, backward, reduce, step, and validate and save in proportion; \
other is the trainer itself), peak_memory_mb (of an accelerator with --profile alone). Everything else goes to standard error.

Started by mpirun or srun, with the feature mpi, processes share the tasks of each step and of each \
test; --meta-batch, --accumulate and --micro-batch are those of all together. Only the first one \
prints and writes.

The run folder gets config.json, metrics.jsonl, curves.svg, last.ckpt and best.ckpt. With \
--resume and the same options, a run that was stopped or killed goes on from last.ckpt bit for \
bit.

Exit code: 0 on success, 2 for wrong usage or a device that is not there, 130 after Ctrl-C (the \
step is finished and saved), 1 for every other failure; a device that fails leaves the last checkpoint \
as it was.";

const EVAL_HELP: &str = "\
The data, the size of the episodes and the seed are those of the checkpoint where nothing is \
said. A run folder stands for its best checkpoint, or its last one where no validation was made. \
Episodes come from the test classes.

With --json, standard output is one JSON object: accuracy and ci95 (percent, 1.96 * std / \
sqrt(n)), of sinusoids mse_after and mse_ci95_after by number of steps in their place, steps, \
eval_episodes_per_s (of episodes), backend, device, route, inner (null without inner loop), \
protocol, seed, checkpoint, of images data_on (device or host: where they lie).

With --features, methods are tested on a file instead: .safetensors with a tensor [n, d] a class or, in \
a build with the feature parquet, .parquet with the columns embedding and class_name. All methods are \
tested on the same episodes. Those marked with * see all queries of an episode together, and are only \
to be compared with each other. With --base-features, simpleshot and laplacian-shot take the mean of \
that file away first, as in their papers; a file may also bring such a mean itself. --method all leaves \
out relation, feat and leo, which have weights that only episodes train. The JSON object has features, \
classes, rows, length, base_mean (whether there is one), backend, device, route, and results, a row each \
of method, settings, ways, shots, queries, episodes, transductive, unbalanced (alpha, or null), seed, \
accuracy, ci95, episodes_per_s.";

const BENCH_HELP: &str = "\
Times are medians with quartiles, of the operation and of its reference in plain Burn operations in \
turns. The limits are measured first: the backend's own matrix products, its copy of a large tensor, \
and a copy in host memory, bytes read and written both counted. The last column is the share of what \
bounds a row, timed anew before it: the fastest matrix product, or the copy in host memory. On an \
accelerator the limits are those of kernels alone, as `hardware bench` tells them, and a row is bounded \
by its launches, its arithmetic or its memory, whichever takes longest. GFLOP/s \
counts convolutions as direct ones, so where Winograd's way saves multiplications the share can exceed \
1. A training step is episode, forward, backward and Adam of a prototypical network. Where no reference \
is timed, plain Burn operations would take minutes and gigabytes.

With --json, standard output is one JSON object: machine (cpu, cores, threads, os, route), version, \
backend, device, limits, and rows of operation, shape, variant, pass, ms, reference_ms (each with min, \
lower_quartile, median, upper_quartile, runs), speedup, gflop_per_s or gb_per_s, limit, launches (null \
on a processor), of_limit. The \
table goes to standard error.";

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Time every fused operation beside its reference and beside the machine's limits.
    #[command(after_long_help = BENCH_HELP, args_override_self = true)]
    Kernels(BenchKernelsArgs),
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
        /// glyphs, omniglot:DIR, folder:DIR or sinusoid
        spec: DataSpec,
        /// Split of Omniglot: vinyals, finn or finn:SEED
        #[arg(long, default_value = "vinyals")]
        split: Split,
    },
}

/// A number of something within `range`.
pub(super) fn count(range: impl RangeBounds<u64>) -> impl TypedValueParser<Value = usize> {
    steps(range).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
}

/// A number of steps within `range`.
pub(super) fn steps(range: impl RangeBounds<u64>) -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(range)
}

/// How to learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Method {
    /// Prototypical network, Snell et al. 2017
    #[value(alias = "prototypes")]
    Protonet,
    /// Model-agnostic meta-learning, Finn et al. 2017
    Maml,
    /// MAML with inner gradients as constants
    Fomaml,
    /// MAML whose head alone adapts, Raghu et al. 2020
    Anil,
    /// MAML whose encoder alone adapts, Oh et al. 2021
    Boil,
    /// MAML with a learned rate for every value, Li et al. 2017
    MetaSgd,
    /// MAML whose gradients go through learned matrices, Park and Oliva 2019
    MetaCurvature,
    /// MAML with rates and batch-norm of each step and an annealed loss, Antoniou et al. 2019
    #[value(name = "maml++")]
    #[serde(rename = "maml++")]
    MamlPlusPlus,
    /// MAML by implicit gradients, Rajeswaran et al. 2019
    Imaml,
    /// MAML whose head begins with prototypes, Triantafillou et al. 2020
    ProtoMaml,
    /// MAML of a context vector, Zintgraf et al. 2019
    Cavia,
    /// Parameters towards where plain training goes, Nichol et al. 2018
    Reptile,
    /// Plastic connections that labels write into, Miconi et al. 2018
    Plastic,
    /// Nearest class mean of normalised embeddings (centred too with --base-features), Wang et al. 2019
    Simpleshot,
    /// Attention over the support, Vinyals et al. 2016
    Matching,
    /// A learned comparison of maps, Sung et al. 2018
    Relation,
    /// Cosine to class means with a learned scale, Chen et al. 2021
    MetaBaseline,
    /// Mahalanobis distance with the covariance of each class, Bateni et al. 2020
    SimpleCnaps,
    /// Class means that attend to each other, Ye et al. 2020
    Feat,
    /// Nearest neighbours among local descriptors, Li et al. 2019
    Dn4,
    /// The earth mover's distance between places of maps, Zhang et al. 2020
    DeepEmd,
    /// Adaptation of a code that class weights are decoded from, Rusu et al. 2019
    Leo,
    /// Differentiable ridge regression, Bertinetto et al. 2019
    R2d2,
    /// Differentiable support vector machine, Lee et al. 2019
    MetaOptNet,
    /// Logistic regression to convergence, Tian et al. 2020
    Logistic,
    /// A linear layer tuned on the support, Chen et al. 2019
    Baseline,
    /// A cosine layer tuned on the support, Chen et al. 2019
    #[value(name = "baseline++")]
    #[serde(rename = "baseline++")]
    BaselinePlusPlus,
    /// Class means tuned on the support
    Finetune,
    /// A cosine layer tuned on support and queries, Dhillon et al. 2020 (transductive; of eval alone)
    TransductiveFinetuning,
    /// Information maximisation by gradient descent, Boudiaf et al. 2020 (transductive; of eval alone)
    TimGd,
    /// Information maximisation in closed form, Boudiaf et al. 2020 (transductive; of eval alone)
    TimAdm,
    /// Rectified prototypes, Liu et al. 2020 (transductive; of eval alone)
    BdCspn,
    /// Laplacian regularisation, Ziko et al. 2020 (transductive; of eval alone)
    LaplacianShot,
    /// Power transform and optimal transport, Hu et al. 2021 (transductive; of eval alone)
    PtMap,
    /// Prototypes refined by soft k-means, Ren et al. 2018 (transductive; of eval alone)
    SoftKMeans,
}

/// What a training step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TrainOn {
    /// The loss of a few-shot task
    Episodes,
    /// The loss of a classifier of all training classes; an episode is a mini-batch
    Classify,
}

/// How the logits of training classes are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BaseLogitsName {
    /// A linear layer
    Linear,
    /// Ten times the cosine to a weight of each class
    Cosine,
}

/// Classical training, after which a head is put on the encoder.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Classical training (--train classify)")]
pub(crate) struct ClassicalArgs {
    /// What a training step is, of methods that work on embeddings [default: classify, where the method
    /// has nothing that episodes train]
    #[arg(long = "train", value_enum, value_name = "HOW")]
    pub(crate) train_on: Option<TrainOn>,
    /// How the logits of training classes are computed [default: linear]
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) base_logits: Option<BaseLogitsName>,
    /// Share of a target that is spread over all training classes [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub(crate) label_smoothing: Option<f64>,
    /// Weight of a second loss, of telling in which quarter turn an image is shown; images must be
    /// square [default: 0]
    #[arg(long, value_name = "WEIGHT")]
    pub(crate) rotation_loss: Option<f64>,
}

/// Whether the outer gradient goes through the inner gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderName {
    /// Inner gradients are constants
    First,
    /// The exact derivative
    Second,
}

/// How the exact derivative is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RouteName {
    /// Step by step, with memory for one
    Chain,
    /// By the graph of the whole inner loop
    Unrolled,
}

/// Inner loops of the methods that have one.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Inner loop (maml and its relatives)")]
pub(crate) struct InnerArgs {
    /// Inner learning rate [default: the paper's, see below]
    #[arg(long, value_name = "RATE")]
    pub(crate) inner_lr: Option<f64>,
    /// Inner steps in training [default: the paper's, see below]
    #[arg(long, value_name = "N", value_parser = count(1..=1000))]
    pub(crate) inner_steps: Option<usize>,
    /// Inner steps in the test [default: the paper's, see below]
    #[arg(long, value_name = "N", value_parser = count(0..=1000))]
    pub(crate) eval_inner_steps: Option<usize>,
    /// Whether the outer gradient goes through the inner ones [default: second, of fomaml first]
    #[arg(long, value_enum)]
    pub(crate) order: Option<OrderName>,
    /// How the exact derivative is computed; the result is the same [default: chain, for
    /// sinusoids unrolled]
    #[arg(long, value_enum, value_name = "ROUTE")]
    pub(crate) second_order_route: Option<RouteName>,
    /// Strength of imaml's proximal term [default: 2]
    #[arg(long, value_name = "STRENGTH")]
    pub(crate) proximal: Option<f64>,
    /// Iterations of imaml's conjugate gradients [default: 5]
    #[arg(long, value_name = "N", value_parser = count(1..=1000))]
    pub(crate) cg_steps: Option<usize>,
    /// Meta-steps in which maml++ has the loss after every inner step, less and less [default:
    /// 5000, for larger images 7500]
    #[arg(long, value_name = "N", value_parser = steps(0..))]
    pub(crate) multi_step_loss: Option<u64>,
    /// Meta-steps of first order that maml++ begins with [default: 0]
    #[arg(long, value_name = "N", value_parser = steps(0..))]
    pub(crate) first_order_steps: Option<u64>,
    /// Examples in an inner step of reptile [default: 10]
    #[arg(long, value_name = "N", value_parser = count(1..=65_536))]
    pub(crate) inner_batch: Option<usize>,
    /// Examples in an inner step of reptile's test [default: 5]
    #[arg(long, value_name = "N", value_parser = count(1..=65_536))]
    pub(crate) eval_inner_batch: Option<usize>,
    /// Tasks that share a network: more are faster on large devices and take memory [default: 4,
    /// for sinusoids 64; all on an accelerator]
    #[arg(long, value_name = "N", value_parser = count(1..=65_536))]
    pub(crate) lanes: Option<usize>,
}

/// What batch-norm normalises with in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BatchNormRule {
    /// Running averages of training, as in the official code
    Running,
    /// The moments of each test episode (transductive): of a protonet support and queries together,
    /// of maml and its relatives apart
    Batch,
    /// Those of the support and one query at a time (inductive), of maml and its relatives alone
    Support,
}

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataOn {
    /// On the device if they take at most a quarter of its free memory, or 1 GiB where that is not
    /// known
    #[default]
    Auto,
    /// On the device
    Device,
    /// In host memory, from where episodes are uploaded
    Host,
}

impl From<DataOn> for DataPlacement {
    fn from(data_on: DataOn) -> Self {
        match data_on {
            DataOn::Auto => Self::Auto,
            DataOn::Device => Self::Device,
            DataOn::Host => Self::Host,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// How to learn
    #[arg(long, value_enum, default_value_t = Method::Protonet)]
    pub(crate) method: Method,
    /// What to learn from: glyphs, omniglot:DIR, folder:DIR or sinusoid
    #[arg(long, default_value = "glyphs", value_name = "SPEC")]
    pub(crate) data: DataSpec,
    /// Split of Omniglot: vinyals (turns are classes), finn or finn:SEED (turns drawn per class)
    /// [default: vinyals]
    #[arg(long)]
    pub(crate) split: Option<Split>,
    /// Side in pixels that images of a folder are resized to [default: 84]
    #[arg(long, value_name = "PIXELS", value_parser = count(1..=4096))]
    pub(crate) image_size: Option<usize>,
    /// Take the brightness alone of images of a folder
    #[arg(long)]
    pub(crate) grey: bool,
    /// Leave out broken images of a folder, and say how many
    #[arg(long)]
    pub(crate) skip_broken: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Where the images lie while an accelerator learns from them; the CPU has them in host memory
    #[arg(long, value_enum, default_value_t)]
    pub(crate) data_on: DataOn,
    /// Classes in a test episode [default: 5]
    #[arg(long, value_name = "W")]
    pub(crate) ways: Option<usize>,
    /// Labelled examples of each class in a test episode [default: 1], or points of a sinusoid
    /// [default: 5]
    #[arg(long, value_name = "K")]
    pub(crate) shots: Option<usize>,
    /// Queries of each class in a test episode [default: 15], or points of a sinusoid [default:
    /// 100]
    #[arg(long, value_name = "Q")]
    pub(crate) queries: Option<usize>,
    /// Classes in a training episode [default: 20, of --train classify 64, or all if there are fewer; of
    /// maml, its relatives and plastic --ways, which it must be]
    #[arg(long, value_name = "W")]
    pub(crate) train_ways: Option<usize>,
    /// Labelled examples of each class in a training episode [default: --shots, of --train classify 1, of
    /// reptile see below], or points of a sinusoid [default: 10]
    #[arg(long, value_name = "K")]
    pub(crate) train_shots: Option<usize>,
    /// Queries of each class in a training episode [default: 5; of --train classify 3; of maml and its
    /// relatives see below]
    #[arg(long, value_name = "Q")]
    pub(crate) train_queries: Option<usize>,
    /// Optimizer steps [default: 600, for sinusoids 70000]
    #[arg(long, value_name = "N", value_parser = steps(1..))]
    pub(crate) steps: Option<u64>,
    /// Episodes in a step [default: 1; of maml and its relatives see below]
    #[arg(long, value_name = "T", value_parser = steps(1..=65_536))]
    pub(crate) meta_batch: Option<u64>,
    /// Memory that training may take by the formulas of its network, as 8GiB; more tasks than fit
    /// are refused, with how many would [default: nine tenths of what is free on the device,
    /// where it tells]
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) memory_budget: Option<Bytes>,
    /// Learning rate of Adam
    #[arg(long, default_value_t = 1e-3)]
    pub(crate) lr: f64,
    /// Steps after which the learning rate is halved, again and again [default: 2000; of maml and
    /// its relatives never]
    #[arg(long, value_name = "N", value_parser = count(1..))]
    pub(crate) halve_every: Option<usize>,
    #[command(flatten)]
    pub(crate) classical: ClassicalArgs,
    #[command(flatten)]
    pub(crate) inner: InnerArgs,
    #[command(flatten)]
    pub(crate) scale: ScaleArgs,
    /// Scale gradients down to this joint norm [default: never]
    #[arg(long, value_name = "NORM")]
    pub(crate) clip_norm: Option<f64>,
    /// Score of a query, of protonet alone: squared-euclidean or cosine
    /// [default: squared-euclidean]
    #[arg(long)]
    pub(crate) metric: Option<Metric>,
    /// Seed of parameters and episodes
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Steps between validations [default: 100, for sinusoids 1000]
    #[arg(long, value_name = "N", value_parser = steps(1..))]
    pub(crate) validate_every: Option<u64>,
    /// Episodes in a validation
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = count(1..))]
    pub(crate) validation_episodes: usize,
    /// Stop after this many validations without a new best [default: never]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) patience: Option<u32>,
    /// Steps between checkpoints [default: 50, for sinusoids 1000]
    #[arg(long, value_name = "N", value_parser = steps(1..))]
    pub(crate) checkpoint_every: Option<u64>,
    /// Episodes in the test
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = count(1..))]
    pub(crate) eval_episodes: usize,
    /// What batch-norm normalises with in the test [default: running; of maml and its relatives
    /// batch]
    #[arg(long, visible_alias = "bn", value_enum)]
    pub(crate) batch_norm: Option<BatchNormRule>,
    /// Run folder [default: a new one under runs/]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Go on with the run in --out
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
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
    /// Data to test on: glyphs, omniglot:DIR, folder:DIR or sinusoid
    #[arg(long, value_name = "SPEC", conflicts_with = "features")]
    pub(crate) data: Option<DataSpec>,
    /// Split of Omniglot: vinyals, finn or finn:SEED
    #[arg(long, conflicts_with = "features")]
    pub(crate) split: Option<Split>,
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
    /// Episodes [default: 1000; with --features 10000]
    #[arg(long, value_parser = count(1..))]
    pub(crate) episodes: Option<usize>,
    /// Seed of the episodes [default: the run's; with --features 1]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// What batch-norm normalises with [default: running; of maml and its relatives batch]
    #[arg(long, visible_alias = "bn", value_enum, conflicts_with = "features")]
    pub(crate) batch_norm: Option<BatchNormRule>,
    /// Inner steps of maml and its relatives
    #[arg(long, value_name = "N", value_parser = count(0..=1000), conflicts_with = "features")]
    pub(crate) eval_inner_steps: Option<usize>,
    /// Examples in an inner step of reptile
    #[arg(long, value_name = "N", value_parser = count(1..=65_536), conflicts_with = "features")]
    pub(crate) eval_inner_batch: Option<usize>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Where the images lie while an accelerator is tested; the CPU has them in host memory
    #[arg(long, value_enum, default_value_t, conflicts_with = "features")]
    pub(crate) data_on: DataOn,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl EvalArgs {
    /// Labelled examples of each class in a test of a run.
    ///
    /// # Errors
    /// When there are several numbers.
    pub(crate) fn shots(&self) -> Result<Option<usize>, CliError> {
        one("--shots", &self.shots).map(|shots| shots.copied())
    }

    /// The method to be put on the encoder of a run.
    ///
    /// # Errors
    /// When there are several, or none of that name.
    pub(crate) fn method(&self) -> Result<Option<Method>, CliError> {
        let known = |name: &String| {
            Method::from_str(name, false).map_err(|_| {
                let known: Vec<_> =
                    Method::value_variants().iter().map(Method::to_string).collect();
                CliError::Usage(format!("no method {name:?}: there are {}", known.join(", ")))
            })
        };
        one("--method", &self.method)?.map(known).transpose()
    }

    /// Episodes of a test of a run.
    pub(crate) fn episodes(&self) -> usize {
        self.episodes.unwrap_or(1000)
    }
}

fn one<'a, T>(option: &str, given: &'a [T]) -> Result<Option<&'a T>, CliError> {
    match given {
        [] => Ok(None),
        [value] => Ok(Some(value)),
        _ => Err(CliError::Usage(format!("several values of {option} are for --features"))),
    }
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Two devices to run the same work on in turns, as flex,wgpu
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) compare: Vec<DevicePreference>,
    /// Operations to measure, separated by commas [default: all]
    #[arg(long, value_enum, value_name = "OPERATIONS", value_delimiter = ',')]
    pub(crate) only: Vec<Operation>,
    /// Measure tiny shapes, just to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Threads of the CPU backends [default: all cores]
    #[arg(long, value_name = "N", value_parser = count(1..=1024))]
    pub(crate) threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchKernelsArgs {
    /// Operations to measure, separated by commas [default: all]
    #[arg(long, value_enum, value_name = "OPERATIONS", value_delimiter = ',')]
    pub(crate) only: Vec<Operation>,
    /// Leave the references out, which take most of the time
    #[arg(long)]
    pub(crate) no_reference: bool,
    /// Measure tiny shapes, just to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
