use std::path::PathBuf;

use burn::tensor::backend::AutodiffBackend;
use fewshot::data::{ClassDataset, Color, OnBroken, QuarterTurn, Split, Splits};
use fewshot::episode::{EpisodeSampler, Protocol, SampleEpisodes};
use fewshot::kernels::route;
use fewshot::learners::MetaLearner;
use fewshot::train::{Evaluation, Evaluator, Trained, TrainingReport};
use serde_json::json;

use super::fit::{Fitting, Pace, Tasks, folder};
use super::memory::Step;
use super::scale::{World, used};
use crate::cli::args::TrainArgs;
use crate::cli::backend::{self, Job, Place, Usage};
use crate::cli::data_spec::{FolderOptions, ImageSpec};
use crate::cli::defaults::Benchmark;
use crate::cli::error::CliError;
use crate::cli::output::{print, print_status};
use crate::cli::recipe::{InnerRecipe, LearnerJob, Recipe};
use crate::cli::report::{join, peak_rss_mb, rounded, selected_by, test_protocol};

pub(super) fn run(args: TrainArgs, data: ImageSpec, world: World) -> Result<(), CliError> {
    let of_folder = args.image_size.is_some() || args.grey || args.skip_broken;
    data.refuse_other_options(args.split, of_folder)?;
    let data = data.absolute();
    let split = args.split.unwrap_or(Split::Vinyals);
    let folder = FolderOptions {
        size: args.image_size.unwrap_or(FolderOptions::default().size),
        color: if args.grey { Color::Grey } else { Color::Rgb },
        on_broken: if args.skip_broken { OnBroken::Skip } else { OnBroken::Fail },
    };
    let splits = data.open(split, folder)?;
    let image = splits.train.image_shape();
    let inner = InnerRecipe::new(args.method, &args.inner, Benchmark::of(image))?
        .map(|inner| inner.with_batch_norm(args.batch_norm));
    let test = Protocol::new(args.ways.unwrap_or(5), args.shots.unwrap_or(1));
    let test = test.with_queries(args.queries.unwrap_or(test.queries));
    let mut recipe = Recipe {
        method: args.method,
        data,
        split,
        folder,
        image,
        test,
        metric: args.metric.unwrap_or_default(),
        inner,
        classical: None,
        learning_rate: args.lr,
        halve_every: args.halve_every.or(inner.is_none().then_some(2000)),
        precision: args.scale.precision.into(),
        seed: args.seed,
    };
    let features = recipe.network()?.features();
    // A turn that is drawn makes another class.
    let turns = if splits.train.draws_turns() { QuarterTurn::ALL.len() } else { 1 };
    let classes = turns * splits.train.classes();
    recipe.classical = args.classical.classifier(args.method, features, classes)?;
    let rotation = recipe.classical.as_ref().is_some_and(|classes| classes.rotation > 0.0);
    if rotation && matches!(recipe.data, ImageSpec::Omniglot(_)) {
        let reason = "whose turned characters are classes of their own";
        return Err(CliError::Usage(format!("--rotation-loss is not for omniglot, {reason}")));
    }
    if rotation && image.height != image.width {
        return Err(CliError::Usage(format!("--rotation-loss needs square images, not {image}")));
    }
    let samplers = Samplers::new(&args, &recipe, splits)?;
    let device = args.device.clone();
    let usage = Usage::of(&args.scale);
    backend::dispatch_with(&device, usage, Training { args, recipe, samplers, world })
}

/// Episodes to train, to validate and to test on.
struct Samplers {
    train: EpisodeSampler,
    validation: Option<EpisodeSampler>,
    test: EpisodeSampler,
    meta_batch: u64,
}

impl Samplers {
    fn new(args: &TrainArgs, recipe: &Recipe, splits: Splits) -> Result<Self, CliError> {
        let defaults = Benchmark::of(recipe.image).defaults(recipe.method);
        let classify = recipe.classical.is_some();
        let shots = args.train_shots.or(classify.then_some(1)).or(defaults.shots);
        let shots = shots.unwrap_or(recipe.test.shots);
        let (ways, queries, meta_batch) = match recipe.inner {
            None if classify => (64.min(splits.train.classes()), 3, 1),
            None if recipe.has_outputs() => (recipe.test.ways, 5, 4),
            None => (20.min(splits.train.classes()), 5, 1),
            Some(_) => (recipe.test.ways, defaults.queries.unwrap_or(shots), defaults.meta_batch),
        };
        let meta_batch = args.meta_batch.unwrap_or(meta_batch);
        let ways = args.train_ways.unwrap_or(ways);
        if recipe.has_outputs() && ways != recipe.test.ways {
            let method = recipe.method;
            return Err(CliError::Usage(format!(
                "{method} learns tasks of as many classes as it is tested on: --train-ways {ways} \
                 is not --ways {}",
                recipe.test.ways
            )));
        }
        let train = Protocol::new(ways, shots).with_queries(args.train_queries.unwrap_or(queries));
        let train = splits.train.sampler(train, args.seed)?;
        let test = splits.test.sampler(recipe.test, args.seed)?;
        // Too few validation classes are no reason not to train, other mistakes were found above.
        let validation = splits.validation.sampler(recipe.test, args.seed);
        let data_on = args.data_on.into();
        let [train, test] = [train, test].map(|sampler| sampler.with_data_on(data_on));
        let validation = validation.map(|sampler| sampler.with_data_on(data_on));
        if let Err(error) = &validation {
            print_status(format_args!("no validation, the last step is tested: {error}"));
        }
        Ok(Self { train, validation: validation.ok(), test, meta_batch })
    }
}

struct Training {
    args: TrainArgs,
    recipe: Recipe,
    samplers: Samplers,
    world: World,
}

impl Training {
    /// Tasks that are differentiated at once, at least.
    fn at_once(&self, devices: usize) -> usize {
        let scale = &self.args.scale;
        let meta_batch = usize::try_from(self.samplers.meta_batch).unwrap_or(usize::MAX);
        let accumulate = usize::try_from(scale.accumulate).unwrap_or(usize::MAX);
        let all = meta_batch.saturating_mul(accumulate);
        if scale.auto_batch {
            return 1;
        }
        match scale.micro_batch {
            Some(tasks) => tasks.min(all),
            None => meta_batch.min(all.div_ceil(devices * self.world.size())),
        }
    }
}

impl Job for Training {
    type Output = ();

    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        let recipe = self.recipe.clone();
        let device = place.device.clone();
        let network = recipe.network()?;
        let step = Step {
            method: recipe.method,
            inner: recipe.inner,
            network,
            protocol: self.samplers.train.protocol(),
            checkpointing: self.args.scale.grad_checkpoint.into(),
            tasks: self.at_once(place.devices.len()),
        };
        let free = place.free_of(self.world.size());
        step.check::<B>(self.args.memory_budget, free, place.largest_buffer, &device)?;
        let checkpointing = self.args.scale.grad_checkpoint.into();
        recipe.with_learner(&device, checkpointing, TrainingAt { training: self, place })
    }

    fn run_balanced<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        self.run::<B>(place)
    }
}

/// Training on a backend.
struct TrainingAt<B: AutodiffBackend> {
    training: Training,
    place: Place<B>,
}

impl<B: AutodiffBackend> LearnerJob<B> for TrainingAt<B> {
    type Output = ();

    fn run<L: MetaLearner<B>>(self, learner: L) -> Result<(), CliError> {
        let Self { training: Training { args, recipe, samplers, world }, place } = self;
        let statistics = recipe.statistics(args.batch_norm)?;
        let folder = folder(&args, recipe.method, recipe.data.name(), &world)?;
        print_status(format_args!(
            "training {} on {} ({}), backend {} on {}, {}; run folder {}",
            recipe.method,
            recipe.data,
            samplers.train.protocol(),
            place.backend,
            place.label,
            route::<B>(),
            folder.display(),
        ));
        let tasks = Tasks {
            train: samplers.train.clone(),
            validation: samplers.validation,
            meta_batch: samplers.meta_batch,
        };
        let pace = Pace {
            steps: args.steps.unwrap_or(600),
            validate_every: args.validate_every.unwrap_or(100),
            checkpoint_every: args.checkpoint_every.unwrap_or(50),
            halve_every: recipe.halve_every,
        };
        let meta_batch = tasks.meta_batch;
        let fitting = Fitting { args: &args, pace, place: &place, world: &world, folder: &folder };
        let (Trained { learner, report }, peak) = fitting.fit(learner, tasks, &recipe)?;
        let evaluation =
            Evaluator::new(args.eval_episodes)
                .with_statistics(statistics)
                .run_shared::<B::InnerBackend>(&learner, &samplers.test, &place.device, &*world)?;
        if !args.json {
            print(format_args!(
                "accuracy on test classes of {}: {evaluation}",
                recipe.data.name()
            ))?;
            return print(format_args!("run folder: {}", folder.display()));
        }
        let trained = TrainedRun { recipe, train: samplers.train.protocol(), meta_batch, folder };
        let mut report_json = trained.json(&place, &report, &evaluation);
        join(&mut report_json, used(&report, peak));
        print(report_json)
    }
}

struct TrainedRun {
    recipe: Recipe,
    train: Protocol,
    meta_batch: u64,
    folder: PathBuf,
}

impl TrainedRun {
    fn json<B: AutodiffBackend>(
        &self,
        place: &Place<B>,
        report: &TrainingReport,
        evaluation: &Evaluation,
    ) -> serde_json::Value {
        let mut protocol = test_protocol(&self.recipe, evaluation);
        protocol["train"] = json!({
            "ways": self.train.ways,
            "shots": self.train.shots,
            "queries": self.train.queries,
            "meta_batch": self.meta_batch,
            "on": if self.recipe.classical.is_some() { "all training classes" } else { "episodes" },
            "batch_norm": match self.recipe.inner {
                None => "support and query in one batch",
                Some(inner) if inner.batch.is_some() => "mini-batches of support and query",
                Some(_) => "support and query in batches of their own",
            },
        });
        protocol["selected_by"] = selected_by(report).into();
        json!({
            "accuracy": rounded(evaluation.accuracy, 2),
            "ci95": rounded(evaluation.ci95, 2),
            "steps": report.steps,
            "train_episodes_per_s": rounded(report.episodes_per_s, 2),
            "tasks_per_s": rounded(report.episodes_per_s, 2),
            "eval_episodes_per_s": rounded(evaluation.episodes_per_s, 2),
            "backend": place.backend,
            "device": place.label,
            "route": route::<B>().to_string(),
            "peak_rss_mb": peak_rss_mb(),
            "inner": self.recipe.inner,
            "protocol": protocol,
            "seed": self.recipe.seed,
            "run": self.folder.display().to_string(),
        })
    }
}
