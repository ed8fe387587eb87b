use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::lr_scheduler::step::StepLrSchedulerConfig;
use burn::tensor::backend::AutodiffBackend;
use fewshot::data::{ClassDataset, Color, OnBroken, Split, Splits};
use fewshot::episode::{EpisodeSampler, Protocol, SampleEpisodes};
use fewshot::kernels::route;
use fewshot::learners::MetaLearner;
use fewshot::optim::Adam;
use fewshot::train::{Evaluation, Evaluator, MetaTrainer, Trained, TrainingReport};
use serde_json::json;

use super::args::{Method, TrainArgs};
use super::backend::{self, Job, Place};
use super::data_spec::FolderOptions;
use super::error::CliError;
use super::output::{print, tell};
use super::progress;
use super::recipe::{InnerRecipe, LearnerJob, Recipe, is_small};
use super::report::{peak_rss_mb, rounded, test_protocol};

pub(crate) fn run(args: TrainArgs) -> Result<(), CliError> {
    check(&args)?;
    backend::prepare(&args.device)?;
    let of_folder = args.image_size.is_some() || args.grey || args.skip_broken;
    args.data.refuse_other_options(args.split, of_folder)?;
    let data = args.data.clone().absolute();
    let split = args.split.unwrap_or(Split::Vinyals);
    let folder = FolderOptions {
        size: args.image_size.unwrap_or(FolderOptions::default().size),
        color: if args.grey { Color::Grey } else { Color::Rgb },
        on_broken: if args.skip_broken { OnBroken::Skip } else { OnBroken::Fail },
    };
    let splits = data.open(split, folder)?;
    let image = splits.train.image_shape();
    let inner = InnerRecipe::new(args.method, &args.inner, image)?;
    let recipe = Recipe {
        method: args.method,
        data,
        split,
        folder,
        image,
        test: Protocol::new(args.ways, args.shots).with_queries(args.queries),
        metric: args.metric.unwrap_or_default(),
        inner,
        learning_rate: args.lr,
        halve_every: args.halve_every.or(inner.is_none().then_some(2000)),
        seed: args.seed,
    };
    let samplers = Samplers::new(&args, &recipe, splits)?;
    let device = args.device.clone();
    backend::dispatch(&device, Training { args, recipe, samplers })
}

fn check(args: &TrainArgs) -> Result<(), CliError> {
    let usage = |text: &str| Err(CliError::Usage(text.to_owned()));
    if !(args.lr.is_finite() && args.lr > 0.0) {
        return usage("--lr must be a positive number");
    }
    if args.metric.is_some() && args.method != Method::Protonet {
        return Err(CliError::Usage(format!("--metric is for protonet, not for {}", args.method)));
    }
    if args.clip_norm.is_some_and(|norm| !(norm.is_finite() && norm > 0.0)) {
        return usage("--clip-norm must be a positive number");
    }
    Ok(())
}

/// Episodes to train, to validate and to test on.
struct Samplers {
    train: EpisodeSampler,
    validation: Option<EpisodeSampler>,
    test: EpisodeSampler,
}

impl Samplers {
    fn new(args: &TrainArgs, recipe: &Recipe, splits: Splits) -> Result<Self, CliError> {
        let shots = args.train_shots.unwrap_or(args.shots);
        let (ways, queries) = match recipe.inner {
            None => (20.min(splits.train.classes()), 5),
            Some(_) if is_small(recipe.image) => (args.ways, shots),
            Some(_) => (args.ways, 15),
        };
        let ways = args.train_ways.unwrap_or(ways);
        if recipe.inner.is_some() && ways != args.ways {
            let method = recipe.method;
            return Err(CliError::Usage(format!(
                "{method} learns tasks of as many classes as it is tested on: --train-ways {ways} \
                 is not --ways {}",
                args.ways
            )));
        }
        let train = Protocol::new(ways, shots).with_queries(args.train_queries.unwrap_or(queries));
        let train = splits.train.sampler(train, args.seed)?;
        let test = splits.test.sampler(recipe.test, args.seed)?;
        // Too few validation classes are no reason not to train, other mistakes were found above.
        let validation = splits.validation.sampler(recipe.test, args.seed);
        if let Err(error) = &validation {
            tell(format_args!("no validation, the last step is tested: {error}"));
        }
        Ok(Self { train, validation: validation.ok(), test })
    }
}

struct Training {
    args: TrainArgs,
    recipe: Recipe,
    samplers: Samplers,
}

impl Job for Training {
    type Output = ();

    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        let recipe = self.recipe.clone();
        let device = place.device.clone();
        recipe.with_learner(&device, TrainingAt { training: self, place })
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
        let Self { training: Training { args, recipe, samplers }, place } = self;
        let statistics = recipe.statistics(args.batch_norm)?;
        let folder = match &args.out {
            Some(folder) => folder.clone(),
            None => new_folder(&recipe)?,
        };
        tell(format_args!(
            "training {} on {} ({}), backend {} on {}, {}; run folder {}",
            recipe.method,
            recipe.data,
            samplers.train.protocol(),
            place.backend,
            place.label,
            route::<B>(),
            folder.display(),
        ));
        let interrupt = Interrupt::listen()?;
        let meta_batch = args.meta_batch.unwrap_or(match recipe.inner {
            None => 1,
            Some(_) if is_small(recipe.image) => 32,
            Some(_) => 4,
        });
        let mut trainer = MetaTrainer::new(learner, Adam::new().init())
            .learning_rate(
                StepLrSchedulerConfig::new(args.lr, recipe.halve_every.unwrap_or(usize::MAX))
                    .with_gamma(0.5)
                    .init()
                    .map_err(CliError::Usage)?,
            )
            .episodes(samplers.train.clone())
            .steps(args.steps)
            .meta_batch(meta_batch)
            .validate_every(args.validate_every)
            .checkpoint_every(args.checkpoint_every)
            .settings(serde_json::to_value(&recipe).expect("a recipe is plain data"))
            .observe(progress::observer())
            .interrupt(interrupt.asked.clone());
        trainer = match args.resume {
            true => trainer.resume_from(&folder),
            false => trainer.run_folder(&folder),
        };
        if let Some(validation) = samplers.validation {
            trainer = trainer.validation(validation, args.validation_episodes);
        }
        if let Some(norm) = args.clip_norm {
            trainer = trainer.clip_norm(norm);
        }
        if let Some(patience) = args.patience {
            trainer = trainer.patience(patience);
        }
        let Trained { learner, report } = trainer.fit::<B>()?;
        interrupt.saved.store(true, Ordering::Relaxed);
        let evaluation = Evaluator::new(args.eval_episodes)
            .with_statistics(statistics)
            .run::<B::InnerBackend>(&learner, &samplers.test, &place.device);
        if !args.json {
            print(format_args!(
                "accuracy on test classes of {}: {evaluation}",
                recipe.data.name()
            ))?;
            return print(format_args!("run folder: {}", folder.display()));
        }
        let trained = Told { recipe, train: samplers.train.protocol(), meta_batch, folder };
        print(trained.json(&place, &report, &evaluation))
    }
}

struct Told {
    recipe: Recipe,
    train: Protocol,
    meta_batch: u64,
    folder: PathBuf,
}

impl Told {
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
            "batch_norm": match self.recipe.inner {
                None => "support and query in one batch",
                Some(_) => "support and query in batches of their own",
            },
        });
        protocol["selected_by"] = match report.progress.best {
            Some(best) => json!(format!("best validation, at step {}", best.step)),
            None => json!("last step"),
        };
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

/// The first free folder of its kind under `runs/`.
fn new_folder(recipe: &Recipe) -> Result<PathBuf, CliError> {
    let runs = PathBuf::from("runs");
    let failed = |error| CliError::Failed(format!("cannot make a run folder under runs/: {error}"));
    fs::create_dir_all(&runs).map_err(failed)?;
    for number in 1.. {
        let folder = runs.join(format!("{}-{}-{number}", recipe.method, recipe.data.name()));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
    }
    unreachable!("one of the numbers is free")
}

/// Ctrl-C: the first one ends training after its step, a second one, or one in the test, at once.
struct Interrupt {
    asked: Arc<AtomicBool>,
    /// Whether training is over and everything saved.
    saved: Arc<AtomicBool>,
}

impl Interrupt {
    fn listen() -> Result<Self, CliError> {
        let new = Self { asked: Arc::default(), saved: Arc::default() };
        let (asked, saved) = (new.asked.clone(), new.saved.clone());
        let handler = move || {
            if asked.swap(true, Ordering::Relaxed) || saved.load(Ordering::Relaxed) {
                std::process::exit(130);
            }
            tell("stopping after this step; press Ctrl-C again to stop at once");
        };
        ctrlc::set_handler(handler)
            .map_err(|error| CliError::Failed(format!("cannot listen for Ctrl-C: {error}")))?;
        Ok(new)
    }
}
