use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::lr_scheduler::step::StepLrSchedulerConfig;
use burn::tensor::backend::AutodiffBackend;
use fewshot::data::{ClassDataset, Color, OnBroken, Split, Splits};
use fewshot::episode::{EpisodeSampler, Protocol, SampleEpisodes};
use fewshot::kernels::route;
use fewshot::models::BnStatistics;
use fewshot::optim::Adam;
use fewshot::train::{Evaluation, Evaluator, MetaTrainer, Trained, TrainingReport};
use serde_json::json;

use super::args::TrainArgs;
use super::backend::{self, Job, Place};
use super::data_spec::FolderOptions;
use super::error::CliError;
use super::output::{print, tell};
use super::progress;
use super::recipe::Recipe;
use super::report::{rounded, test_protocol};

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
    let recipe = Recipe {
        method: args.method.name().to_owned(),
        data,
        split,
        folder,
        image: splits.train.image_shape(),
        test: Protocol::new(args.ways, args.shots).with_queries(args.queries),
        metric: args.metric,
        learning_rate: args.lr,
        halve_every: args.halve_every,
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
        let ways = args.train_ways.unwrap_or(20.min(splits.train.classes()));
        let shots = args.train_shots.unwrap_or(args.shots);
        let train = Protocol::new(ways, shots).with_queries(args.train_queries);
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
        let Self { args, recipe, samplers } = self;
        let learner = recipe.learner::<B>(&place.device)?;
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
        let mut trainer = MetaTrainer::new(learner, Adam::new().init())
            .learning_rate(
                StepLrSchedulerConfig::new(args.lr, args.halve_every)
                    .with_gamma(0.5)
                    .init()
                    .map_err(CliError::Usage)?,
            )
            .episodes(samplers.train.clone())
            .steps(args.steps)
            .meta_batch(args.meta_batch)
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
            .with_statistics(BnStatistics::from(args.batch_norm))
            .run::<B::InnerBackend>(&learner, &samplers.test, &place.device);
        if !args.json {
            print(format_args!(
                "accuracy on test classes of {}: {evaluation}",
                recipe.data.name()
            ))?;
            return print(format_args!("run folder: {}", folder.display()));
        }
        let trained = Told { args, recipe, train: samplers.train.protocol(), folder };
        print(trained.json(&place, &report, &evaluation))
    }
}

struct Told {
    args: TrainArgs,
    recipe: Recipe,
    train: Protocol,
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
            "meta_batch": self.args.meta_batch,
            "batch_norm": "support and query in one batch",
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
            "eval_episodes_per_s": rounded(evaluation.episodes_per_s, 2),
            "backend": place.backend,
            "device": place.label,
            "route": route::<B>().to_string(),
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
