//! Sine waves: regression as in the MAML paper.

mod plot;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use burn::module::AutodiffModule;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot::data::Sinusoids;
use fewshot::episode::RegressionSampler;
use fewshot::kernels::route;
use fewshot::learners::Maml;
use fewshot::models::{Mlp, MlpConfig};
use fewshot::precision::Precision;
use fewshot::train::{Checkpoint, Evaluator, Score, TrainError, Trained};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::args::{DataOn, EvalArgs, Method, TrainArgs};
use super::backend::{self, Job, Place, Usage};
use super::data_spec::{DataSpec, SINUSOID};
use super::defaults::Benchmark;
use super::error::CliError;
use super::eval;
use super::output::{print, print_status};
use super::recipe::InnerRecipe;
use super::report::{peak_rss_mb, rounded, selected_by};
use super::train::{Fitting, Pace, Tasks, World, folder, used};

/// Widths of the paper's network.
const LAYERS: [usize; 3] = [40, 40, 1];

/// Length of cavia's context on sine waves.
const CONTEXT: usize = 5;

/// Numbers of steps after which the paper tells the error.
const AFTER: [usize; 4] = [0, 1, 5, 10];

/// What a run was told that its resumption must repeat and its test can look up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SinusoidRecipe {
    method: Method,
    data: String,
    shots: usize,
    queries: usize,
    inner: InnerRecipe,
    learning_rate: f64,
    /// Never, where there is none.
    halve_every: Option<usize>,
    #[serde(default)]
    precision: Precision,
    seed: u64,
}

/// The waves of a test are not those of training or validation.
const VALIDATION: u64 = 1 << 32;
const TEST: u64 = 2 << 32;

/// Whether a checkpoint is of a run on sine waves.
pub(crate) fn is_sinusoid_run(checkpoint: &Checkpoint) -> bool {
    checkpoint.settings()["user"]["data"] == SINUSOID
}

pub(crate) fn train(args: TrainArgs, world: World) -> Result<(), CliError> {
    refuse_image_options(&args)?;
    let Some(inner) = InnerRecipe::new(args.method, &args.inner, Benchmark::Sinusoids)? else {
        return Err(CliError::Usage(format!(
            "{} classifies; sinusoids are for maml and its relatives",
            args.method
        )));
    };
    let recipe = SinusoidRecipe {
        method: args.method,
        data: SINUSOID.to_owned(),
        shots: args.shots.unwrap_or(5),
        queries: args.queries.unwrap_or(100),
        inner,
        learning_rate: args.lr,
        halve_every: args.halve_every,
        precision: args.scale.precision.into(),
        seed: args.seed,
    };
    let samplers = Samplers::new(&args, &recipe)?;
    let (device, usage) = (args.device.clone(), Usage::of(&args.scale));
    backend::dispatch_with(&device, usage, Training { args, recipe, samplers, world })
}

pub(crate) fn eval(
    args: EvalArgs,
    path: PathBuf,
    checkpoint: Checkpoint,
    world: World,
) -> Result<(), CliError> {
    let usage = |text: &str| Err(CliError::Usage(format!("{text} {}", path.display())));
    if !matches!(args.data, None | Some(DataSpec::Sinusoids)) {
        return usage("images are not for the sinusoids of");
    }
    let data_on = args.data_on != DataOn::Auto;
    if let Some(method) = args.method()? {
        let path = path.display();
        return Err(CliError::Usage(format!("{method} is for images, {path} takes sinusoids")));
    }
    if args.ways.is_some() || args.split.is_some() || args.batch_norm.is_some() || data_on {
        return usage("--ways, --split, --batch-norm and --data-on are not for the sinusoids of");
    }
    let trained: SinusoidRecipe = eval::recipe(&checkpoint, &path)?;
    let inner = eval::with_batch(Some(trained.inner), args.eval_inner_batch, trained.method)?;
    let inner = inner.unwrap_or(trained.inner);
    let recipe = SinusoidRecipe {
        shots: args.shots()?.unwrap_or(trained.shots),
        queries: args.queries.unwrap_or(trained.queries),
        seed: args.seed.unwrap_or(trained.seed),
        inner: InnerRecipe {
            eval_steps: args.eval_inner_steps.unwrap_or(inner.eval_steps),
            ..inner
        },
        ..trained
    };
    let test = recipe.test()?;
    let device = args.device.clone();
    backend::dispatch(&device, Testing { args, recipe, path, checkpoint, test, world })
}

fn refuse_image_options(args: &TrainArgs) -> Result<(), CliError> {
    let given = [
        ("--split", args.split.is_some()),
        ("--image-size", args.image_size.is_some()),
        ("--grey", args.grey),
        ("--skip-broken", args.skip_broken),
        ("--ways", args.ways.is_some()),
        ("--train-ways", args.train_ways.is_some()),
        ("--batch-norm", args.batch_norm.is_some()),
        // Their network takes a few hundred kilobytes, whatever the meta-batch.
        ("--memory-budget", args.memory_budget.is_some()),
        ("--auto-batch", args.scale.auto_batch),
        ("--data-on", args.data_on != DataOn::Auto),
        ("--train", args.classical.train_on.is_some()),
        ("--base-logits", args.classical.base_logits.is_some()),
        ("--label-smoothing", args.classical.label_smoothing.is_some()),
        ("--rotation-loss", args.classical.rotation_loss.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            Err(CliError::Usage(format!("{option} is for images, not for sinusoids")))
        }
        None => Ok(()),
    }
}

impl SinusoidRecipe {
    fn sampler(
        &self,
        shots: usize,
        queries: usize,
        part: u64,
    ) -> Result<RegressionSampler, CliError> {
        let seed = self.seed.wrapping_add(part);
        Ok(RegressionSampler::new(Sinusoids::default(), shots, queries, seed)?)
    }

    fn test(&self) -> Result<RegressionSampler, CliError> {
        self.sampler(self.shots, self.queries, TEST)
    }

    fn learner<B: AutodiffBackend>(&self, device: &B::Device) -> Result<Maml<B, Mlp<B>>, CliError> {
        self.precision.check::<B>(device).map_err(TrainError::from)?;
        B::seed(device, self.seed);
        let context = if self.method == Method::Cavia { CONTEXT } else { 0 };
        let network = MlpConfig::new(1).with_layers(LAYERS.to_vec()).with_context(context);
        let network = network.with_precision(self.precision).init(device);
        self.inner.learner(self.method, network)
    }

    /// Numbers of steps that a test tells the error after.
    fn after(&self) -> BTreeSet<usize> {
        AFTER.into_iter().chain([self.inner.eval_steps]).collect()
    }

    fn tested<B: Backend>(
        &self,
        learner: &Maml<B, Mlp<B>>,
        test: &RegressionSampler,
        tasks: usize,
        (device, world): (&B::Device, &World),
    ) -> Result<Tested, CliError> {
        let after = self.after().into_iter().map(|steps| {
            let learner = learner.clone().with_test_steps(steps);
            Ok((steps, Evaluator::new(tasks).score_shared(&learner, test, device, &**world)?))
        });
        Ok(Tested(after.collect::<Result<_, CliError>>()?))
    }

    fn protocol(&self, tasks: usize) -> Value {
        json!({
            "method": self.method,
            "data": self.data,
            "shots": self.shots,
            "queries": self.queries,
            "episodes": tasks,
            "ci": "1.96 * std / sqrt(episodes)",
        })
    }
}

/// Tasks to train, to validate and to test on.
struct Samplers {
    train: RegressionSampler,
    validation: RegressionSampler,
    test: RegressionSampler,
    meta_batch: u64,
}

impl Samplers {
    fn new(args: &TrainArgs, recipe: &SinusoidRecipe) -> Result<Self, CliError> {
        let defaults = Benchmark::Sinusoids.defaults(recipe.method);
        let shots = args.train_shots.or(defaults.shots).unwrap_or(recipe.shots);
        let queries = args.train_queries.unwrap_or(defaults.queries.unwrap_or(shots));
        Ok(Self {
            train: recipe.sampler(shots, queries, 0)?,
            validation: recipe.sampler(recipe.shots, recipe.queries, VALIDATION)?,
            test: recipe.test()?,
            meta_batch: args.meta_batch.unwrap_or(defaults.meta_batch),
        })
    }
}

struct Training {
    args: TrainArgs,
    recipe: SinusoidRecipe,
    samplers: Samplers,
    world: World,
}

impl Job for Training {
    type Output = ();

    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        let Self { args, recipe, samplers, world } = self;
        let Samplers { train, validation, test, meta_batch } = samplers;
        let learner = recipe.learner::<B>(&place.device)?;
        let folder = folder(&args, recipe.method, SINUSOID, &world)?;
        let (shots, queries) = (train.shots(), train.queries());
        print_status(format_args!(
            "training {} on sinusoids ({shots} shots, {queries} queries), backend {} on {}, {}; run \
             folder {}",
            recipe.method,
            place.backend,
            place.label,
            route::<B>(),
            folder.display(),
        ));
        let pace = Pace {
            steps: args.steps.unwrap_or(70_000),
            validate_every: args.validate_every.unwrap_or(1000),
            checkpoint_every: args.checkpoint_every.unwrap_or(1000),
            halve_every: recipe.halve_every,
        };
        let tasks = Tasks { train, validation: Some(validation), meta_batch };
        let fitting = Fitting { args: &args, pace, place: &place, world: &world, folder: &folder };
        let (Trained { learner, report }, peak) = fitting.fit(learner, tasks, &recipe)?;
        let tested = recipe.tested(&learner, &test, args.eval_episodes, (&place.device, &world))?;
        let plotted = match world.rank() {
            0 => plot::write(&learner, &recipe, &folder, &place.device),
            _ => Ok(()),
        };
        if !args.json {
            tested.tell()?;
            print(format_args!("run folder: {}", folder.display()))?;
            return plotted;
        }
        let mut protocol = recipe.protocol(args.eval_episodes);
        protocol["train"] = json!({ "shots": shots, "queries": queries, "meta_batch": meta_batch });
        protocol["selected_by"] = selected_by(&report).into();
        let mut told = tested.json();
        told.extend(object(used(&report, peak)));
        told.extend(object(json!({
            "steps": report.steps,
            "train_episodes_per_s": rounded(report.episodes_per_s, 2),
            "tasks_per_s": rounded(report.episodes_per_s, 2),
            "backend": place.backend,
            "device": place.label,
            "route": route::<B>().to_string(),
            "peak_rss_mb": peak_rss_mb(),
            "inner": recipe.inner,
            "protocol": protocol,
            "seed": recipe.seed,
            "run": folder.display().to_string(),
        })));
        print(Value::Object(told))?;
        plotted
    }

    fn run_balanced<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        self.run::<B>(place)
    }
}

struct Testing {
    args: EvalArgs,
    recipe: SinusoidRecipe,
    path: PathBuf,
    checkpoint: Checkpoint,
    test: RegressionSampler,
    world: World,
}

impl Job for Testing {
    type Output = ();

    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        let Self { args, recipe, path, checkpoint, test, world } = self;
        let learner = recipe.learner::<B>(&place.device)?;
        let learner = checkpoint.load::<B, _, _>(learner, &place.device)?.valid();
        let tested = recipe.tested(&learner, &test, args.episodes(), (&place.device, &world))?;
        if !args.json {
            return tested.tell();
        }
        let mut told = tested.json();
        told.extend(object(json!({
            "steps": checkpoint.progress().step,
            "backend": place.backend,
            "device": place.label,
            "route": route::<B>().to_string(),
            "inner": recipe.inner,
            "protocol": recipe.protocol(args.episodes()),
            "seed": recipe.seed,
            "checkpoint": path.display().to_string(),
        })));
        print(Value::Object(told))
    }
}

/// The errors after numbers of inner steps.
struct Tested(BTreeMap<usize, Score>);

impl Tested {
    fn tell(&self) -> Result<(), CliError> {
        self.0.iter().try_for_each(|(steps, score)| {
            print(format_args!("after {steps:>2} steps on new sinusoids: {score}"))
        })
    }

    fn json(&self) -> serde_json::Map<String, Value> {
        let all = |value: fn(&Score) -> f64| -> BTreeMap<String, f64> {
            let told = self.0.iter().map(|(steps, score)| (steps.to_string(), value(score)));
            told.map(|(steps, value)| (steps, rounded(value, 4))).collect()
        };
        object(json!({
            "mse_after": all(|score| score.mean),
            "mse_ci95_after": all(|score| score.ci95),
        }))
    }
}

fn object(value: Value) -> serde_json::Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => unreachable!("{other} is written as an object"),
    }
}
