//! Sine waves: regression as in the MAML paper.

mod plot;

use std::collections::{BTreeMap, BTreeSet};

use burn::module::AutodiffModule;
use fewshot::data::Sinusoids;
use fewshot::episode::{DataPlacement, RegressionSampler};
use fewshot::hardware::Checkpointing;
use fewshot::learners::Maml;
use fewshot::models::{Mlp, MlpConfig};
use fewshot::precision::Precision;
use fewshot::train::{Checkpoint, Evaluator, Score, TrainError};
use serde::{Deserialize, Serialize};

use crate::args::{EvalArgs, TrainArgs, first_given};
use crate::backend::Balanced;
use crate::checkpoint;
use crate::data_spec::{DataSpec, SINUSOID};
use crate::method::{Benchmark, Method};
use crate::prelude::*;
use crate::settings::{InnerSettings, OuterStep};
use crate::training::{Fitted, Run, Tasks};
use crate::world::World;

const LAYERS: [usize; 3] = [40, 40, 1];

/// Length of cavia's context on sine waves.
const CONTEXT: usize = 5;

/// Numbers of steps after which the paper reports the error.
const AFTER: [usize; 4] = [0, 1, 5, 10];

/// The options of a run that its resumption must repeat and its test can look up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SinusoidSettings {
    method: Method,
    data: String,
    shots: usize,
    queries: usize,
    inner: InnerSettings,
    #[serde(flatten)]
    outer: OuterStep,
    #[serde(default)]
    precision: Precision,
    seed: u64,
}

/// Defaults of the steps, and of the steps between validations and between checkpoints.
const PACE: [u64; 3] = [70_000, 1000, 1000];

/// The waves of a test are not those of training or validation.
const VALIDATION: u64 = 1 << 32;
const TEST: u64 = 2 << 32;

pub(crate) fn train(args: &TrainArgs, world: World) -> Result {
    let method = args.method;
    refuse_image_options(args)?;
    let Some(inner) = InnerSettings::new(method, &args.inner, Benchmark::Sinusoids)? else {
        return Err(usage!("{method} classifies; sinusoids are for maml and its relatives"));
    };
    let settings = SinusoidSettings {
        method,
        data: SINUSOID.to_owned(),
        shots: args.shots.unwrap_or(5),
        queries: args.queries.unwrap_or(100),
        inner,
        outer: OuterStep::new(args, None, PACE[0])?,
        precision: args.scale.precision,
        seed: args.seed,
    };
    let defaults = method.defaults(Benchmark::Sinusoids);
    let shots = args.train_shots.or(defaults.shots).unwrap_or(settings.shots);
    let queries = args.train_queries.or(defaults.queries).unwrap_or(shots);
    let tasks = Tasks {
        train: settings.sampler(shots, queries, 0)?,
        validation: Some(settings.sampler(settings.shots, settings.queries, VALIDATION)?),
        test: settings.test()?,
        meta_batch: args.meta_batch.unwrap_or(defaults.meta_batch),
    };
    let micro_batch = args.scale.micro_batch;
    let run = Run { args, settings, tasks, world, start: None, pace: PACE, micro_batch };
    backend::dispatch_on(&args.device, &args.scale.devices, run)
}

pub(crate) fn eval(args: &EvalArgs, path: PathBuf, checkpoint: Checkpoint, world: World) -> Result {
    let of = path.display();
    if !matches!(args.data, None | Some(DataSpec::Sinusoids)) {
        return Err(usage!("images are not for the sinusoids of {of}"));
    }
    if let Some(method) = args.method()? {
        return Err(usage!("{method} is for images, {of} takes sinusoids"));
    }
    args.tasks()?;
    if let Some(option) = first_given!(args.sampling, protocol) {
        return Err(usage!("{option} is for images, not for sinusoids"));
    }
    let data_on = args.data_on != DataPlacement::Auto;
    if args.ways.is_some() || args.split.is_some() || args.batch_norm.is_some() || data_on {
        let options = "--ways, --split, --batch-norm and --data-on";
        return Err(usage!("{options} are not for the sinusoids of {of}"));
    }
    let trained: SinusoidSettings = checkpoint::settings(&checkpoint, &path)?;
    let settings = SinusoidSettings {
        shots: args.shots()?.unwrap_or(trained.shots),
        queries: args.queries.unwrap_or(trained.queries),
        seed: args.seed.unwrap_or(trained.seed),
        inner: trained.inner.tested_as(trained.method, args)?,
        ..trained
    };
    let test = settings.test()?;
    backend::dispatch(&args.device, Testing { args, settings, path, checkpoint, test, world })
}

fn refuse_image_options(args: &TrainArgs) -> Result {
    // Their network takes a few hundred kilobytes, whatever the meta-batch.
    let of_memory = first_given!(args.scale, auto_batch).or(first_given!(args, memory_budget));
    args.eval_episodes.count()?;
    let of_images = args.images.given().or(first_given!(args, ways, train_ways));
    let of_images = of_images.or(first_given!(args.sampling, protocol));
    let of_tests = first_given!(args, batch_norm, data_on, train_on_validation);
    let classical =
        first_given!(args.classical, train, base_logits, label_smoothing, rotation_loss);
    let of_images = of_images.or(first_given!(args.outer, from, encoder_lr));
    let network = first_given!(args.network, encoder);
    let given =
        of_images.or(of_tests).or(of_memory).or(classical).or(args.augment.given()).or(network);
    given.map_or(Ok(()), |option| Err(usage!("{option} is for images, not for sinusoids")))
}

impl SinusoidSettings {
    fn sampler(&self, shots: usize, queries: usize, part: u64) -> Result<RegressionSampler> {
        let seed = self.seed.wrapping_add(part);
        Ok(RegressionSampler::new(Sinusoids::default(), shots, queries, seed)?)
    }

    fn test(&self) -> Result<RegressionSampler> {
        self.sampler(self.shots, self.queries, TEST)
    }

    fn learner<B: AutodiffBackend>(&self, device: &B::Device) -> Result<Maml<B, Mlp<B>>> {
        self.precision.check::<B>(device).map_err(TrainError::from)?;
        B::seed(device, self.seed);
        let context = if self.method == Method::Cavia { CONTEXT } else { 0 };
        let network = MlpConfig::new(1).with_layers(LAYERS.to_vec()).with_context(context);
        let network = network.with_precision(self.precision).init(device);
        self.inner.learner(self.method, network)
    }

    /// The errors after some numbers of inner steps.
    fn tested<B: Backend>(
        &self,
        learner: &Maml<B, Mlp<B>>,
        test: &RegressionSampler,
        tasks: usize,
        (device, world): (&B::Device, &World),
    ) -> Result<Tested> {
        let mut scores = BTreeMap::new();
        for steps in BTreeSet::from_iter(AFTER.into_iter().chain([self.inner.eval_steps])) {
            let learner = learner.clone().with_test_steps(steps);
            let score = Evaluator::new(tasks).score_shared(&learner, test, device, &**world)?;
            scores.insert(steps, score);
        }
        Ok(Tested(scores))
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

type SinusoidRun<'a> = Run<'a, SinusoidSettings, RegressionSampler>;

impl Work for SinusoidRun<'_> {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        match self.args.scale.grad_checkpoint {
            Checkpointing::Balanced => self.train::<Balanced<B>>(&hardware),
            Checkpointing::Nothing | Checkpointing::Segments => {
                self.train::<Autodiff<B>>(&hardware)
            }
        }
    }
}

impl SinusoidRun<'_> {
    fn train<B: AutodiffBackend>(self, hardware: &HardwareManager<B::InnerBackend>) -> Result {
        let Self { args, settings, tasks, world, .. } = &self;
        let device = hardware.device();
        let learner = settings.learner::<B>(device)?;
        let (shots, queries) = (tasks.train.shots(), tasks.train.queries());
        let what = format!("sinusoids ({shots} shots, {queries} queries)");
        let fitted = self.fit::<B, _>(hardware, learner, &settings.outer, SINUSOID, what)?;
        let Fitted { learner, folder, .. } = &fitted;
        let episodes = args.eval_episodes.count()?;
        let tested = settings.tested(learner, &tasks.test, episodes, (device, world))?;
        let plotted = match world.rank() {
            0 => plot::write(learner, settings, folder, device),
            _ => Ok(()),
        };
        if !args.json {
            tested.tell()?;
            print(format_args!("run folder: {}", folder.display()))?;
            return plotted;
        }
        let mut protocol = settings.protocol(episodes);
        let meta_batch = tasks.meta_batch;
        protocol["train"] = json!({ "shots": shots, "queries": queries, "meta_batch": meta_batch });
        protocol["selected_by"] = fitted.selected_by().into();
        let mut report = tested.json(settings, protocol);
        join(&mut report, fitted.json(hardware));
        print(report)?;
        plotted
    }
}

struct Testing<'a> {
    args: &'a EvalArgs,
    settings: SinusoidSettings,
    path: PathBuf,
    checkpoint: Checkpoint,
    test: RegressionSampler,
    world: World,
}

impl Work for Testing<'_> {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        let Self { args, settings, path, checkpoint, test, world } = self;
        let device = hardware.device();
        let learner = settings.learner::<Autodiff<B>>(device)?;
        let learner = checkpoint.load::<Autodiff<B>, _, _>(learner, device)?.valid();
        let episodes = args.tasks()?;
        let tested = settings.tested(&learner, &test, episodes, (device, &world))?;
        if !args.json {
            return tested.tell();
        }
        let mut report = tested.json(&settings, settings.protocol(episodes));
        report["steps"] = checkpoint.progress().step.into();
        report["checkpoint"] = path.display().to_string().into();
        join(&mut report, backend::fields(&hardware));
        print(report)
    }
}

struct Tested(BTreeMap<usize, Score>);

impl Tested {
    fn tell(&self) -> Result {
        self.0.iter().try_for_each(|(steps, score)| {
            print(format_args!("after {steps:>2} steps on new sinusoids: {score}"))
        })
    }

    fn json(&self, settings: &SinusoidSettings, protocol: Value) -> Value {
        let all = |value: fn(&Score) -> f64| -> BTreeMap<String, f64> {
            let scores = self.0.iter();
            scores.map(|(steps, score)| (steps.to_string(), rounded(value(score), 4))).collect()
        };
        json!({
            "mse_after": all(|score| score.mean),
            "mse_ci95_after": all(|score| score.ci95),
            "inner": settings.inner,
            "protocol": protocol,
            "seed": settings.seed,
        })
    }
}
