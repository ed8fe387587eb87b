use std::path::Path;
use std::time::Instant;

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;

use super::Run;
use crate::episode::TaskSource;
use crate::learners::MetaLearner;
use crate::phase::{Phase, phase};
use crate::settings::difference;
use crate::train::finite::all_finite;
use crate::train::metrics::Line;
use crate::train::options::Folder;
use crate::train::weight_average::WeightAverage;
use crate::train::{Checkpoint, Evaluator, Event, RunFolder, TrainError, ValidationMetrics};

/// The record of the weights that go on, where that of the learner is their average.
const WEIGHTS: &str = "weights";

impl<B, L, O, S, T> Run<B, L, O, S, T>
where
    B: AutodiffBackend,
    T: TaskSource,
    L: MetaLearner<B, T::Kind>,
    O: Optimizer<L, B>,
    S: LrScheduler,
{
    /// Begins the run, or goes on with one, in all processes from the state that the first one has.
    pub(super) fn open(&mut self) -> Result<(), TrainError> {
        self.begin_average();
        match self.options.folder.clone() {
            Some(Folder::Old(folder)) => return self.resume(&folder),
            Some(Folder::New(folder)) => {
                let group = self.group.clone();
                let config = self.config();
                group.broadcast_from_root(|| {
                    let folder = self.folder.insert(RunFolder::create(folder)?);
                    folder.write_config(&config)?;
                    self.check_parameters()?;
                    self.save_here()?;
                    Ok(Vec::new())
                })?;
            }
            None => {}
        }
        self.broadcast_parameters()
    }

    fn broadcast_parameters(&mut self) -> Result<(), TrainError> {
        if !self.group.is_multi_process() {
            return Ok(());
        }
        let made = self.group.broadcast_from_root(|| Ok(self.learner_checkpoint().to_bytes()))?;
        if self.group.is_root() {
            return Ok(());
        }
        let first = Checkpoint::from_bytes(&made, Path::new("what the first process sent"))?;
        self.learner = Some(first.load::<B, _, _>(self.learner().clone(), self.device())?);
        self.begin_average();
        Ok(())
    }

    fn begin_average(&mut self) {
        let decay = self.options.average_decay;
        self.average = decay.map(|decay| WeightAverage::new(decay, self.learner()));
    }

    fn resume(&mut self, folder: &Path) -> Result<(), TrainError> {
        let path = RunFolder::last(folder);
        let group = self.group.clone();
        let last = group.broadcast_from_root(|| {
            if !path.exists() {
                return Err(TrainError::NothingToResume { folder: folder.to_owned() });
            }
            let last = Checkpoint::read(&path)?;
            if let Some((name, actual, expected)) = difference("", last.settings(), &self.settings)
            {
                let path = path.clone();
                return Err(TrainError::OtherSettings { path, name, actual, expected });
            }
            Ok(last.to_bytes())
        })?;
        let last = Checkpoint::from_bytes(&last, &path)?;
        let device = self.device().clone();
        let learner = last.load::<B, _, _>(self.learner().clone(), &device)?;
        self.learner = Some(learner);
        if self.options.average_decay.is_some() {
            self.begin_average();
            let weights = last.record::<B, _>(WEIGHTS, &device)?;
            self.learner = Some(self.learner().clone().load_record(weights));
        }
        self.optimizer =
            self.optimizer.clone().load_record(last.record::<B, _>("optimizer", &device)?);
        self.scheduler =
            self.scheduler.clone().load_record::<B>(last.record::<B, _>("scheduler", &device)?);
        self.progress = last.progress().clone();
        if let Some(state) = self.progress.scaler
            && let Some(scaler) = self.scaler.take()
        {
            self.scaler = Some(scaler.with_state(state)?);
        }
        if self.progress.best.is_some() {
            let path = RunFolder::best(folder);
            let best = group.broadcast_from_root(|| Ok(Checkpoint::read(&path)?.to_bytes()))?;
            self.best = Some(Checkpoint::from_bytes(&best, &path)?);
        }
        let config = self.config();
        group.broadcast_from_root(|| {
            let resumed = RunFolder::resume(folder, self.progress.step)?;
            self.folder.insert(resumed).write_config(&config)?;
            Ok(Vec::new())
        })?;
        Ok(())
    }

    pub(super) fn validate(&mut self) -> Result<(), TrainError> {
        phase(Phase::Validate, || self.check_parameters())?;
        let Some((source, tasks)) = &self.validation else {
            return Ok(());
        };
        let start = Instant::now();
        let learner = self.tested().valid();
        let validation = phase(Phase::Validate, || {
            let evaluator = Evaluator::new(*tasks);
            evaluator.score_shared(&learner, source, self.device(), &*self.group.communicator)
        });
        let validation = validation.map_err(|error| self.stopped(error.into()))?;
        if !validation.mean.is_finite() {
            let (mean, step) = (validation.mean, self.progress.step);
            return Err(TrainError::NonFiniteValidation { mean, step, folder: self.folder_path() });
        }
        let best = self.progress.validated(validation);
        if best {
            let learner = phase(Phase::Validate, || self.learner_checkpoint());
            if let Some(folder) = &self.folder {
                learner.write(&RunFolder::best(&folder.path))?;
            }
            self.best = Some(learner);
        }
        let metrics = ValidationMetrics { step: self.progress.step, validation };
        if let Some(folder) = &mut self.folder {
            folder.log(Line::Validation(metrics.clone()))?;
            folder.draw_curves()?;
        }
        self.clock.validating += start.elapsed().as_secs_f64();
        self.emit(&Event::Validated { metrics, best });
        Ok(())
    }

    /// In the first process, once all of them have the same parameters.
    pub(super) fn save(&mut self) -> Result<(), TrainError> {
        self.check_parameters()?;
        if self.group.is_multi_process() {
            self.group.check_same(&self.learner_checkpoint().digest(), self.progress.step)?;
        }
        self.save_here()?;
        // Nobody goes on, and perhaps to an end that ends all, before everything is written.
        Ok(self.group.communicator.barrier()?)
    }

    fn save_here(&mut self) -> Result<(), TrainError> {
        if self.folder.is_none() {
            return Ok(());
        }
        let mut last = self.learner_checkpoint();
        if self.average.is_some() {
            last = last.with::<B>(WEIGHTS, self.learner().clone().into_record());
        }
        let last = last
            .with::<B>("optimizer", self.optimizer.to_record())
            .with::<B>("scheduler", self.scheduler.to_record::<B>());
        match &mut self.folder {
            Some(folder) => folder.write_last(&last),
            None => Ok(()),
        }
    }

    /// Checks the parameters, so that a checkpoint has finite numbers alone.
    fn check_parameters(&self) -> Result<(), TrainError> {
        let finite = all_finite::<B, _>(self.learner());
        // It has read from the device, which may have told of a failure by now.
        self.check_device()?;
        if finite {
            return Ok(());
        }
        let step = self.progress.step;
        Err(TrainError::NonFiniteParameters { step, folder: self.folder_path() })
    }

    fn learner_checkpoint(&self) -> Checkpoint {
        let architecture = self.learner().architecture();
        Checkpoint::new(architecture, self.settings.clone(), self.progress.clone())
            .with::<B>("learner", self.tested().into_record())
    }
}
