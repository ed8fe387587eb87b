//! Training, whatever the tasks.

mod report;

use std::fmt::Display;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::optim::Optimizer;
use fewshot::episode::TaskSource;
use fewshot::hardware::{Bytes, DeviceInfo, MemoryBudget, ModelProfile, SearchBudget};
use fewshot::kernels::{Route, route};
use fewshot::learners::MetaLearner;
use fewshot::train::{MetaTrainer, Trained, TrainingReport, find_meta_batch};
use serde::Serialize;

use crate::args::TrainArgs;
use crate::prelude::*;
use crate::progress;
use crate::report::peak_rss_mb;
use crate::settings::{OuterStep, Start};
use crate::world::{World, smallest};
use report::{tell_profile, used, with_peak};

pub(crate) struct Tasks<T> {
    pub(crate) train: T,
    pub(crate) validation: Option<T>,
    pub(crate) test: T,
    pub(crate) meta_batch: u64,
}

/// A training run, with settings that its resumption must repeat.
pub(crate) struct Run<'a, S, T> {
    pub(crate) args: &'a TrainArgs,
    pub(crate) settings: S,
    pub(crate) tasks: Tasks<T>,
    pub(crate) world: World,
    /// The run whose parameters training starts with.
    pub(crate) start: Option<Start>,
    /// Defaults of the steps, and of the steps between validations and between checkpoints.
    pub(crate) pace: [u64; 3],
    /// Tasks at once: `--micro-batch`, or as many as fit if these are fewer.
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

    pub(crate) fn json<B: Backend>(&self, hardware: &HardwareManager<B>) -> Value {
        let episodes_per_s = rounded(self.report.episodes_per_s, 2);
        let mut json = json!({
            "steps": self.report.steps,
            "train_episodes_per_s": episodes_per_s,
            "tasks_per_s": episodes_per_s,
            "peak_rss_mb": peak_rss_mb(),
            "run": self.folder.display().to_string(),
        });
        join(&mut json, backend::fields(hardware));
        join(&mut json, used(&self.report, self.peak_memory_mb));
        json
    }
}

impl<S: Serialize, T: TaskSource + Clone> Run<'_, S, T> {
    /// `--memory-budget`, or nine tenths of what is free to this process.
    pub(crate) fn memory(&self, info: &DeviceInfo) -> MemoryBudget {
        let share = 0.9 / backend::sharers(info, self.world.size()) as f64;
        self.args.memory_budget.map_or(MemoryBudget::Share(share), MemoryBudget::Bytes)
    }

    /// Trains `learner` by outer steps on tasks of `data`, printed as `what`.
    pub(crate) fn fit<B: AutodiffBackend, L: MetaLearner<B, T::Kind>>(
        &self,
        hardware: &HardwareManager<B::InnerBackend>,
        learner: L,
        outer: &OuterStep,
        data: &str,
        what: impl Display,
    ) -> Result<Fitted<L::InnerModule>> {
        let Self { args, settings, tasks, .. } = self;
        let scale = &args.scale;
        let groups = outer.groups::<B, L>(&learner)?;
        let optimizer = outer.optimizer().init::<B, L>().with_groups(groups.clone());
        let folder = self.folder(data)?;
        let (method, phrase, run) = (args.method, backend::phrase(hardware), folder.display());
        print_status(format_args!("training {method} on {what}, {phrase}; run folder {run}"));
        let interrupt = Interrupt::listen()?;
        let micro_batch = match scale.auto_batch {
            true => self.largest_micro_batch::<B, L, _>(hardware, &learner, &optimizer)?,
            false => self.micro_batch,
        };
        let [steps, validate_every, checkpoint_every] = self.pace;
        let mut trainer = MetaTrainer::new(learner, optimizer)
            .learning_rate(outer.schedule())
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
            .interrupt(interrupt.stop.clone());
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
        if groups.freezes() {
            trainer = trainer.groups(groups);
        }
        if let Some(decay) = args.outer.ema {
            trainer = trainer.average_weights(decay);
        }
        if let Some(norm) = args.clip_norm {
            trainer = trainer.clip_norm(norm);
        }
        if let Some(patience) = args.patience {
            trainer = trainer.patience(patience);
        }
        let devices = hardware.devices().map(|(_, device)| device.clone()).collect();
        let train = || trainer.fit_on::<B>(devices);
        let (trained, peak_memory_mb) = with_peak::<B, _>(hardware, scale.profile, train);
        let Trained { learner, report } = trained?;
        interrupt.saved.store(true, Ordering::Relaxed);
        if scale.profile {
            tell_profile(&report);
        }
        Ok(Fitted { learner, folder, report, peak_memory_mb })
    }

    /// The largest micro-batch that fits, in every process; `None` if that is a meta-batch.
    fn largest_micro_batch<B: AutodiffBackend, L: MetaLearner<B, T::Kind>, O: Optimizer<L, B>>(
        &self,
        hardware: &HardwareManager<B::InnerBackend>,
        learner: &L,
        optimizer: &O,
    ) -> Result<Option<usize>> {
        let Ok(budget) = hardware.budget() else {
            let label = backend::label(hardware.info());
            return Err(usage!(
                "--auto-batch needs to know the memory of {label}: give --memory-budget"
            ));
        };
        let (tasks, accumulate) = (&self.tasks, self.args.scale.accumulate);
        let replicas = (hardware.devices().count() * self.world.size()) as u64;
        let share = tasks.meta_batch.saturating_mul(accumulate) / replicas;
        let most = usize::try_from(tasks.meta_batch.min(share)).unwrap_or(usize::MAX).max(1);
        let (source, device) = (&tasks.train, hardware.device());
        let keep_free = self.args.scale.auto_batch_margin;
        let average = match self.args.outer.ema {
            // Trial steps have none.
            Some(_) => ModelProfile::of::<B, L>(learner).bytes().bytes.0,
            None => 0,
        };
        let budget = SearchBudget { bytes: Bytes(budget.0.saturating_sub(average)), keep_free };
        let report = find_meta_batch(learner, optimizer, source, device, budget, 1..=most)?;
        let chosen = smallest(&self.world, report.chosen)?;
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
    stop: Arc<AtomicBool>,
    /// Set once training is over and everything is saved.
    saved: Arc<AtomicBool>,
}

impl Interrupt {
    fn listen() -> Result<Self> {
        let new = Self { stop: Arc::default(), saved: Arc::default() };
        let (stop, saved) = (new.stop.clone(), new.saved.clone());
        let handler = move || {
            if stop.swap(true, Ordering::Relaxed) || saved.load(Ordering::Relaxed) {
                std::process::exit(130);
            }
            print_status("stopping after this step; press Ctrl-C again to stop at once");
        };
        ctrlc::set_handler(handler)
            .map_err(|error| failed!("cannot listen for Ctrl-C: {error}"))?;
        Ok(new)
    }
}
