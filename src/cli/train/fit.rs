//! Training, whatever the tasks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::lr_scheduler::step::StepLrSchedulerConfig;
use burn::optim::Optimizer;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot::episode::TaskSource;
use fewshot::hardware::{Bytes, SearchBudget};
use fewshot::kernels::{Route, route};
use fewshot::learners::MetaLearner;
use fewshot::optim::Adam;
use fewshot::parallel::gather_numbers;
use fewshot::train::{MetaTrainer, Trained, find_meta_batch};
use serde::Serialize;

use super::scale::{World, tell_profile, with_peak};
use crate::cli::args::{Method, TrainArgs};
use crate::cli::backend::Place;
use crate::cli::error::CliError;
use crate::cli::output::print_status;
use crate::cli::progress;

/// Tasks to train and to validate on, and how many in a step.
pub(in crate::cli) struct Tasks<T> {
    pub(in crate::cli) train: T,
    pub(in crate::cli) validation: Option<T>,
    pub(in crate::cli) meta_batch: u64,
}

/// How long training goes on, and after how many steps something else happens.
pub(in crate::cli) struct Pace {
    pub(in crate::cli) steps: u64,
    pub(in crate::cli) validate_every: u64,
    pub(in crate::cli) checkpoint_every: u64,
    pub(in crate::cli) halve_every: Option<usize>,
}

/// Training as told, whatever the learner.
pub(in crate::cli) struct Fitting<'a, B: Backend> {
    pub(in crate::cli) args: &'a TrainArgs,
    pub(in crate::cli) pace: Pace,
    pub(in crate::cli) place: &'a Place<B>,
    pub(in crate::cli) world: &'a World,
    pub(in crate::cli) folder: &'a Path,
}

impl<B: AutodiffBackend> Fitting<'_, B> {
    /// Trains `learner`; `recipe` is what a resumption must repeat. Beside what was trained, the most
    /// memory that it took, in MB, where that is known.
    pub(in crate::cli) fn fit<T: TaskSource, L: MetaLearner<B, T::Kind>>(
        &self,
        learner: L,
        tasks: Tasks<T>,
        recipe: &impl Serialize,
    ) -> Result<(Trained<L::InnerModule>, Option<f64>), CliError> {
        let (args, pace, scale) = (self.args, &self.pace, &self.args.scale);
        let interrupt = Interrupt::listen()?;
        let optimizer = Adam::new().init::<B, L>();
        let micro_batch = match scale.auto_batch {
            true => self.micro_batch(&learner, &optimizer, &tasks)?,
            false => scale.micro_batch,
        };
        let mut trainer = MetaTrainer::new(learner, optimizer)
            .learning_rate(
                StepLrSchedulerConfig::new(args.lr, pace.halve_every.unwrap_or(usize::MAX))
                    .with_gamma(0.5)
                    .init()
                    .map_err(CliError::Usage)?,
            )
            .episodes(tasks.train)
            .steps(pace.steps)
            .meta_batch(tasks.meta_batch)
            .accumulate(scale.accumulate)
            .reduction(scale.reduction.into())
            .validate_every(pace.validate_every)
            .checkpoint_every(pace.checkpoint_every)
            .profile(scale.profile)
            .settings(serde_json::to_value(recipe).expect("a recipe is plain data"))
            .observe(progress::observer(matches!(route::<B>(), Route::Device(_))))
            .communicator(self.world.clone())
            .interrupt(interrupt.asked.clone());
        trainer = match args.resume {
            true => trainer.resume_from(self.folder),
            false => trainer.run_folder(self.folder),
        };
        if let Some(validation) = tasks.validation {
            trainer = trainer.validation(validation, args.validation_episodes);
        }
        if let Some(tasks) = micro_batch {
            trainer = trainer.micro_batch(tasks);
        }
        if let Some(norm) = args.clip_norm {
            trainer = trainer.clip_norm(norm);
        }
        if let Some(patience) = args.patience {
            trainer = trainer.patience(patience);
        }
        let devices = self.place.devices.clone();
        let train = || trainer.fit_on::<B>(devices);
        let (trained, peak) = with_peak(self.place, scale.profile, train);
        let trained = trained?;
        interrupt.saved.store(true, Ordering::Relaxed);
        if scale.profile {
            tell_profile(&trained.report);
        }
        Ok((trained, peak))
    }

    /// The largest micro-batch that fits, in every process; `None` if that is a meta-batch.
    fn micro_batch<T: TaskSource, L: MetaLearner<B, T::Kind>, O: Optimizer<L, B>>(
        &self,
        learner: &L,
        optimizer: &O,
        tasks: &Tasks<T>,
    ) -> Result<Option<usize>, CliError> {
        let free = self.place.free_of(self.world.size());
        let Some(budget) = self.args.memory_budget.or(share_of(free)) else {
            return Err(CliError::Usage(format!(
                "--auto-batch needs to know the memory of {}: say --memory-budget",
                self.place.label
            )));
        };
        let (accumulate, replicas) = (self.args.scale.accumulate, self.replicas());
        let share = tasks.meta_batch.saturating_mul(accumulate) / replicas as u64;
        let most = usize::try_from(tasks.meta_batch.min(share)).unwrap_or(usize::MAX).max(1);
        let (source, device) = (&tasks.train, &self.place.device);
        let keep_free = self.args.scale.auto_batch_margin;
        let budget = SearchBudget { bytes: budget, keep_free };
        let found = find_meta_batch(learner, optimizer, source, device, budget, 1..=most)?;
        let all = gather_numbers(&**self.world, &[found.chosen as f64])?.concat();
        let chosen = all.into_iter().fold(f64::INFINITY, f64::min) as usize;
        print_status(format_args!("{chosen} of {most} tasks fit {} at once", budget.usable()));
        let cut = chosen < most || replicas as u64 > accumulate;
        Ok(cut.then_some(chosen))
    }

    fn replicas(&self) -> usize {
        self.place.devices.len() * self.world.size()
    }
}

/// Nine tenths of what is free.
pub(super) fn share_of(free: Option<Bytes>) -> Option<Bytes> {
    free.map(|free| Bytes(free.0 / 10 * 9))
}

/// The folder that was named, or the first free one of its kind under `runs/`.
pub(in crate::cli) fn folder(
    args: &TrainArgs,
    method: Method,
    data: &str,
    world: &World,
) -> Result<PathBuf, CliError> {
    if let Some(folder) = &args.out {
        return Ok(folder.clone());
    }
    let mut name = match world.rank() {
        0 => free_folder(method, data)?.to_string_lossy().into_owned().into_bytes(),
        _ => Vec::new(),
    };
    world.broadcast(0, &mut name)?;
    Ok(PathBuf::from(String::from_utf8_lossy(&name).into_owned()))
}

fn free_folder(method: Method, data: &str) -> Result<PathBuf, CliError> {
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
            print_status("stopping after this step; press Ctrl-C again to stop at once");
        };
        ctrlc::set_handler(handler)
            .map_err(|error| CliError::Failed(format!("cannot listen for Ctrl-C: {error}")))?;
        Ok(new)
    }
}
