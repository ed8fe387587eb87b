//! Training, whatever the tasks.

use std::fmt::Display;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use fewshot::episode::TaskSource;
use fewshot::hardware::{Bytes, SearchBudget};
use fewshot::kernels::{Route, route};
use fewshot::learners::MetaLearner;
use fewshot::train::{MetaTrainer, Trained, TrainingReport, find_meta_batch};
use serde::Serialize;

use super::scale::{tell_profile, used, with_peak};
use crate::args::TrainArgs;
use crate::prelude::*;
use crate::progress;
use crate::report::peak_rss_mb;
use crate::world::{World, smallest};

pub(crate) struct Tasks<T> {
    pub(crate) train: T,
    pub(crate) validation: Option<T>,
    pub(crate) test: T,
    pub(crate) meta_batch: u64,
}

pub(crate) struct Fitting<'a, B: Backend> {
    pub(crate) args: &'a TrainArgs,
    pub(crate) place: &'a Place<B>,
    pub(crate) world: &'a World,
    /// Defaults of the steps, and of the steps between validations and between checkpoints.
    pub(crate) pace: [u64; 3],
    pub(crate) micro_batch: Option<usize>,
}

pub(crate) struct Fitted<L> {
    pub(crate) learner: L,
    pub(crate) folder: PathBuf,
    report: TrainingReport,
    peak_memory_mb: Option<f64>,
}

impl<L> Fitted<L> {
    pub(crate) fn selected_by(&self) -> String {
        match self.report.progress.best {
            Some(best) => format!("best validation, at step {}", best.step),
            None => "last step".to_owned(),
        }
    }

    pub(crate) fn json<B: Backend>(&self, place: &Place<B>) -> Value {
        let episodes_per_s = rounded(self.report.episodes_per_s, 2);
        let mut json = json!({
            "steps": self.report.steps,
            "train_episodes_per_s": episodes_per_s,
            "tasks_per_s": episodes_per_s,
            "peak_rss_mb": peak_rss_mb(),
            "run": self.folder.display().to_string(),
        });
        join(&mut json, place.json());
        join(&mut json, used(&self.report, self.peak_memory_mb));
        json
    }
}

impl<B: AutodiffBackend> Fitting<'_, B> {
    /// Trains `learner` by outer steps of `optimizer` at its rate on tasks of `data`, printed as `what`; a
    /// resumption must repeat `settings`.
    pub(crate) fn fit<T: TaskSource + Clone, L: MetaLearner<B, T::Kind>>(
        &self,
        learner: L,
        (optimizer, rate): (impl Optimizer<L, B>, impl LrScheduler),
        tasks: &Tasks<T>,
        settings: &impl Serialize,
        data: &str,
        what: impl Display,
    ) -> Result<Fitted<L::InnerModule>> {
        let (args, scale, place) = (self.args, &self.args.scale, self.place);
        let folder = self.folder(data)?;
        let (method, run) = (args.method, folder.display());
        print_status(format_args!("training {method} on {what}, {place}; run folder {run}"));
        let interrupt = Interrupt::listen()?;
        let micro_batch = match scale.auto_batch {
            true => self.largest_micro_batch(&learner, &optimizer, tasks)?,
            false => self.micro_batch,
        };
        let [steps, validate_every, checkpoint_every] = self.pace;
        let mut trainer = MetaTrainer::new(learner, optimizer)
            .learning_rate(rate)
            .episodes(tasks.train.clone())
            .steps(args.steps.unwrap_or(steps))
            .meta_batch(tasks.meta_batch)
            .accumulate(scale.accumulate)
            .reduction(scale.reduction)
            .validate_every(args.validate_every.unwrap_or(validate_every))
            .checkpoint_every(args.checkpoint_every.unwrap_or(checkpoint_every))
            .profile(scale.profile)
            .settings(serde_json::to_value(settings).expect("settings are plain data"))
            .observe(progress::observer(matches!(route::<B>(), Route::Device(_))))
            .communicator(self.world.clone())
            .interrupt(interrupt.asked.clone());
        trainer = match args.resume {
            true => trainer.resume_from(&folder),
            false => trainer.run_folder(&folder),
        };
        if let Some(validation) = tasks.validation.clone() {
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
        let train = || trainer.fit_on::<B>(place.devices.clone());
        let (trained, peak_memory_mb) = with_peak(place, scale.profile, train);
        let Trained { learner, report } = trained?;
        interrupt.saved.store(true, Ordering::Relaxed);
        if scale.profile {
            tell_profile(&report);
        }
        Ok(Fitted { learner, folder, report, peak_memory_mb })
    }

    /// The largest micro-batch that fits, in every process; `None` if that is a meta-batch.
    fn largest_micro_batch<T: TaskSource, L: MetaLearner<B, T::Kind>, O: Optimizer<L, B>>(
        &self,
        learner: &L,
        optimizer: &O,
        tasks: &Tasks<T>,
    ) -> Result<Option<usize>> {
        let free = self.place.free_of(self.world.size());
        let Some(budget) = self.args.memory_budget.or(share_of(free)) else {
            let label = self.place.label();
            return Err(usage!(
                "--auto-batch needs to know the memory of {label}: give --memory-budget"
            ));
        };
        let accumulate = self.args.scale.accumulate;
        let replicas = (self.place.devices.len() * self.world.size()) as u64;
        let share = tasks.meta_batch.saturating_mul(accumulate) / replicas;
        let most = usize::try_from(tasks.meta_batch.min(share)).unwrap_or(usize::MAX).max(1);
        let (source, device) = (&tasks.train, &self.place.device);
        let keep_free = self.args.scale.auto_batch_margin;
        let budget = SearchBudget { bytes: budget, keep_free };
        let found = find_meta_batch(learner, optimizer, source, device, budget, 1..=most)?;
        let chosen = smallest(self.world, found.chosen)?;
        print_status(format_args!("{chosen} of {most} tasks fit {} at once", budget.usable()));
        Ok((chosen < most || replicas > accumulate).then_some(chosen))
    }

    /// The folder that was named, or the first free one of its kind under `runs/`.
    fn folder(&self, data: &str) -> Result<PathBuf> {
        if let Some(folder) = &self.args.out {
            return Ok(folder.clone());
        }
        let mut name = match self.world.rank() {
            0 => free_folder(&format!("{}-{data}", self.args.method))?.into_bytes(),
            _ => Vec::new(),
        };
        self.world.broadcast(&mut name)?;
        Ok(PathBuf::from(String::from_utf8_lossy(&name).into_owned()))
    }
}

pub(super) fn share_of(free: Option<Bytes>) -> Option<Bytes> {
    free.map(|free| Bytes(free.0 / 10 * 9))
}

fn free_folder(kind: &str) -> Result<String> {
    let failed = |error| failed!("cannot make a run folder under runs/: {error}");
    fs::create_dir_all("runs").map_err(failed)?;
    for number in 1.. {
        let folder = format!("runs/{kind}-{number}");
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
    fn listen() -> Result<Self> {
        let new = Self { asked: Arc::default(), saved: Arc::default() };
        let (asked, saved) = (new.asked.clone(), new.saved.clone());
        let handler = move || {
            if asked.swap(true, Ordering::Relaxed) || saved.load(Ordering::Relaxed) {
                std::process::exit(130);
            }
            print_status("stopping after this step; press Ctrl-C again to stop at once");
        };
        ctrlc::set_handler(handler)
            .map_err(|error| failed!("cannot listen for Ctrl-C: {error}"))?;
        Ok(new)
    }
}
