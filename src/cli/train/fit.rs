//! Training, whatever the tasks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::lr_scheduler::step::StepLrSchedulerConfig;
use burn::tensor::backend::AutodiffBackend;
use fewshot::episode::TaskSource;
use fewshot::learners::MetaLearner;
use fewshot::optim::Adam;
use fewshot::train::{MetaTrainer, Trained};
use serde::Serialize;

use super::super::args::{Method, TrainArgs};
use super::super::error::CliError;
use super::super::output::tell;
use super::super::progress;

/// Tasks to train and to validate on, and how many in a step.
pub(in crate::cli) struct Tasks<T> {
    pub(in crate::cli) train: T,
    pub(in crate::cli) validation: Option<T>,
    pub(in crate::cli) meta_batch: u64,
}

/// Where training stands still between one look at the learner and the next.
pub(in crate::cli) struct Pace {
    pub(in crate::cli) steps: u64,
    pub(in crate::cli) validate_every: u64,
    pub(in crate::cli) checkpoint_every: u64,
    pub(in crate::cli) halve_every: Option<usize>,
}

/// Trains `learner` as told, in `folder`; `recipe` is what a resumption must repeat.
pub(in crate::cli) fn fit<B: AutodiffBackend, T: TaskSource, L: MetaLearner<B, T::Kind>>(
    args: &TrainArgs,
    pace: &Pace,
    learner: L,
    tasks: Tasks<T>,
    recipe: &impl Serialize,
    folder: &Path,
) -> Result<Trained<L::InnerModule>, CliError> {
    let interrupt = Interrupt::listen()?;
    let mut trainer = MetaTrainer::new(learner, Adam::new().init())
        .learning_rate(
            StepLrSchedulerConfig::new(args.lr, pace.halve_every.unwrap_or(usize::MAX))
                .with_gamma(0.5)
                .init()
                .map_err(CliError::Usage)?,
        )
        .episodes(tasks.train)
        .steps(pace.steps)
        .meta_batch(tasks.meta_batch)
        .validate_every(pace.validate_every)
        .checkpoint_every(pace.checkpoint_every)
        .settings(serde_json::to_value(recipe).expect("a recipe is plain data"))
        .observe(progress::observer())
        .interrupt(interrupt.asked.clone());
    trainer = match args.resume {
        true => trainer.resume_from(folder),
        false => trainer.run_folder(folder),
    };
    if let Some(validation) = tasks.validation {
        trainer = trainer.validation(validation, args.validation_episodes);
    }
    if let Some(norm) = args.clip_norm {
        trainer = trainer.clip_norm(norm);
    }
    if let Some(patience) = args.patience {
        trainer = trainer.patience(patience);
    }
    let trained = trainer.fit::<B>()?;
    interrupt.saved.store(true, Ordering::Relaxed);
    Ok(trained)
}

/// The folder that was named, or the first free one of its kind under `runs/`.
pub(in crate::cli) fn folder(
    args: &TrainArgs,
    method: Method,
    data: &str,
) -> Result<PathBuf, CliError> {
    if let Some(folder) = &args.out {
        return Ok(folder.clone());
    }
    let runs = PathBuf::from("runs");
    let failed = |error| CliError::Failed(format!("cannot make a run folder under runs/: {error}"));
    fs::create_dir_all(&runs).map_err(failed)?;
    for number in 1.. {
        let folder = runs.join(format!("{method}-{data}-{number}"));
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
