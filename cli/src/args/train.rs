use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fewshot::episode::DataPlacement;
use fewshot::hardware::Bytes;
use fewshot::learners::BaseLogits;
use fewshot::metric::Metric;

use super::device::placement;
use super::scale::ScaleArgs;
use super::{
    AugmentArgs, BatchNormRule, DeviceArgs, EncoderArgs, ImageArgs, InnerArgs, OptimizerArgs,
    SamplingArgs, TestEpisodes, count, one_of, steps,
};
use crate::data_spec::{DataSpec, specs};
use crate::method::Method;

pub(crate) const TRAIN_HELP: &str = "\
Without options: a prototypical network on generated glyphs, 5-way 1-shot, on the best device.

A step is one optimizer step, on --meta-batch episodes. Training episodes have --train-ways etc., test \
episodes --ways etc. Classical training (--train classify) has mini-batches of --batch-size images in place of episodes. The learner \
with the best validation is tested on test classes; validation uses running \
batch-norm statistics, except of maml and its relatives.

--protocol varied draws sizes anew for each episode, as Meta-Dataset (Triantafillou et al. 2020): from 5 to 50 \
ways, as many queries of each class as half of the smallest class of the episode has, at most 10, a support of \
at most 500, and more shots for larger classes. It is for protonet, the heads on embeddings and proto-maml, \
which then has 50 outputs; with --train classify, for the test alone. Episodes of several sizes are learned from \
one after the other.

simpleshot, logistic, baseline, baseline++ and finetune learn from few examples on top of an encoder that was \
trained as a classifier of all training classes (--train classify); matching to meta-opt-net are trained on \
episodes or, except relation, feat and leo, with --train classify. `fewshot eval RUN --method NAME` puts any \
of them, and those that see all queries, on the encoder of a run.

maml and its relatives adapt a linear layer on four convolution blocks: with strides and an average for \
images of at most 32 pixels, as in the MAML paper on Omniglot (imaml without the average), else with \
max-pools and 32 channels, as on miniImageNet. Their batch-norm normalises with the images at hand, so \
tests are transductive except with --bn support.

The defaults of inner rate, inner steps in training and test, queries a class in training and episodes in a \
step are

                images up to 32 pixels   larger images            sinusoids
maml            0.4    1   3  K   32     0.01   5  10  15   4     0.001  1   1  K   25
maml++          0.1    5   5  K    8     0.01   5   5  15   2     0.001  5   5  K   25
proto-maml      0.01   1   3  K   32     0.01   5  10  15   4
imaml           0.1   16  16  K   32     0.1   16  16  15   4     0.01  16  16  K   25
cavia           1      2   2  15  16     1      2   2  15  16     1      1   1  K   25
reptile         0.001  5  50  5    5     0.001  8  50   7   5     0.01  10  10  K   25

with K as many as shots, and the other methods as maml. Reptile learns from support and queries alike, by \
default 5 and 5, of larger images 8 and 7; its outer step goes towards the mean of where the tasks' inner \
loops end, at first all the way and less and less until the last of --steps. maml++ needs more than its \
--multi-step-loss steps to end its annealing.

--data sinusoid is the regression of the MAML paper: maml and its relatives except proto-maml fit sine waves \
from a few points with a network of 1-40-40-1. The test gives the squared error after 0, 1, 5 and 10 steps, \
and adapted.svg in the run folder shows the curves of two waves.

With --json, standard output is one JSON object: accuracy and ci95 (percent, 1.96 * std / sqrt(n)), of \
sinusoids mse_after and mse_ci95_after by number of steps in their place (null where a task diverged), steps, \
train_episodes_per_s, tasks_per_s (the same), eval_episodes_per_s (of episodes), peak_rss_mb (of the process, \
null where it is not known), backend, device, route, inner (null without inner loop), protocol, seed, run, \
precision, loss_scale (null but in f16), skipped_steps (that overflowed in f16), replicas (devices of all \
processes), data_on (device or host: where images lie), phase_ms (of a step of this process: data, forward, \
backward, reduce, step, and validate and save in proportion; other is the trainer itself), peak_memory_mb (of \
an accelerator with --profile alone). Everything else goes to standard error.

Started by mpirun or srun, with the feature mpi, processes share the tasks of each step and of each test; \
--meta-batch, --accumulate and --micro-batch are those of all together. Only the first one prints and writes.

The run folder gets config.json, metrics.jsonl, curves.svg, last.ckpt and best.ckpt. With --resume and the \
same options, a run that was stopped or killed continues from last.ckpt bit for bit.

Exit code: 0 on success, 2 for wrong usage or a device that is not there, 130 after Ctrl-C (the step is \
finished and saved), 1 for every other failure; a device that fails leaves the last checkpoint as it was.";

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// Learning method
    #[arg(long, value_enum, default_value_t = Method::Protonet)]
    pub(crate) method: Method,
    #[arg(long, default_value = "glyphs", value_name = "SPEC", help = specs("What to learn from"))]
    pub(crate) data: DataSpec,
    #[command(flatten)]
    pub(crate) images: ImageArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Where the images lie while an accelerator learns from them; the CPU has them in host memory
    #[arg(long, default_value = "auto", value_parser = placement())]
    pub(crate) data_on: DataPlacement,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
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
    /// Classes in a training episode [default: 20, or all if there are fewer; of maml, its relatives and
    /// plastic --ways, which it must be]
    #[arg(long, value_name = "W")]
    pub(crate) train_ways: Option<usize>,
    /// Labelled examples of each class in a training episode [default: --shots, of reptile see below], or
    /// points of a sinusoid [default: 10]
    #[arg(long, value_name = "K")]
    pub(crate) train_shots: Option<usize>,
    /// Queries of each class in a training episode [default: 5; of maml and its relatives see below]
    #[arg(long, value_name = "Q")]
    pub(crate) train_queries: Option<usize>,
    /// Optimizer steps [default: 600, for sinusoids 70000]; of reptile, and of schedules that end
    /// with them, a resumption must repeat them
    #[arg(long, value_name = "N", value_parser = steps(1..))]
    pub(crate) steps: Option<u64>,
    /// Episodes in a step [default: 1; of maml and its relatives see below]
    #[arg(long, value_name = "T", value_parser = steps(1..=65_536))]
    pub(crate) meta_batch: Option<u64>,
    /// Memory that training may take by the formulas of its network, as 8GiB; more tasks than fit
    /// are refused, with how many would, but for an accelerator, see --micro-batch [default: nine
    /// tenths of what is free on the device, if known]
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) memory_budget: Option<Bytes>,
    /// Learning rate [default: 0.001, of --optimizer sgd 0.05]; of reptile what its plain steps begin with
    /// [default: 1]
    #[arg(long, value_name = "RATE")]
    pub(crate) lr: Option<f64>,
    /// Steps after which the learning rate is halved, again and again, not of reptile [default: 2000; of
    /// maml and its relatives never]
    #[arg(long, value_name = "N", value_parser = count(1..))]
    pub(crate) halve_every: Option<usize>,
    #[command(flatten)]
    pub(crate) outer: OptimizerArgs,
    #[command(flatten)]
    pub(crate) network: EncoderArgs,
    #[command(flatten)]
    pub(crate) classical: ClassicalArgs,
    #[command(flatten)]
    pub(crate) augment: AugmentArgs,
    #[command(flatten)]
    pub(crate) inner: InnerArgs,
    #[command(flatten)]
    pub(crate) scale: ScaleArgs,
    /// Scale gradients down to this joint norm [default: never]
    #[arg(long, value_name = "NORM")]
    pub(crate) clip_norm: Option<f64>,
    /// Score of a query, of protonet alone: squared-euclidean or cosine
    /// [default: squared-euclidean, where --encoder has weights cosine]
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
    /// Learn from the validation classes too, as papers do when all settings are chosen: nothing is validated, and the last
    /// step is tested
    #[arg(long, conflicts_with_all = ["patience", "validate_every", "validation_episodes"])]
    pub(crate) train_on_validation: bool,
    /// Stop after this many validations without a new best [default: never]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) patience: Option<u32>,
    /// Steps between checkpoints [default: 50, for sinusoids 1000]
    #[arg(long, value_name = "N", value_parser = steps(1..))]
    pub(crate) checkpoint_every: Option<u64>,
    /// Episodes in the test: so many, or those of a list, .jsonl or .csv, as `fewshot data episodes` writes it
    #[arg(long, visible_alias = "episodes", default_value = "1000", value_name = "N|FILE")]
    pub(crate) eval_episodes: TestEpisodes,
    /// Statistics by which batch-norm normalises in the test [default: running; of maml and its relatives
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

/// Kinds of training steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TrainOn {
    /// The loss of a few-shot task
    Episodes,
    /// The loss of a classifier of all training classes, on mini-batches of their images
    Classify,
}

/// Factor applied to cosines, which span only -1 to 1.
pub(crate) const COSINE_SCALE: f64 = 10.0;

const COSINE: BaseLogits = BaseLogits::Cosine { scale: COSINE_SCALE };

/// Classical training, after which a head is put on the encoder.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Classical training (--train classify)")]
pub(crate) struct ClassicalArgs {
    /// Kind of training step, for methods that work on embeddings [default: classify, where the method
    /// has nothing that episodes train]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) train: Option<TrainOn>,
    /// Images in a mini-batch, of which a step has --meta-batch; an epoch shows every training image once, in random order
    /// [default: 256, or all if there are fewer]
    #[arg(long, value_name = "N", value_parser = count(1..))]
    pub(crate) batch_size: Option<usize>,
    /// Layer that computes the logits of training classes [default: linear]
    #[arg(long, value_name = "KIND", value_parser = one_of([
        ("linear", "A linear layer", BaseLogits::Linear),
        ("cosine", "Ten times the cosine to a weight of each class", COSINE),
    ]))]
    pub(crate) base_logits: Option<BaseLogits>,
    /// Share of a target that is spread over all training classes [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub(crate) label_smoothing: Option<f64>,
    /// Weight of a second loss, of telling in which quarter turn an image is shown; images must be
    /// square [default: 0]
    #[arg(long, value_name = "WEIGHT")]
    pub(crate) rotation_loss: Option<f64>,
}
