//! The beginning of a run: devices, tasks, and the settings that a resumption must repeat.

use std::sync::Arc;

use burn::lr_scheduler::LrScheduler;
use burn::optim::Optimizer;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_kernels::largest_bank;
use fewshot_models::nn::drawn;
use serde_json::{Value, json};

use super::step::DeferredSteps;
use super::{Clock, Run};
use crate::episode::{DataPlacement, TaskSource};
use crate::hardware::{memory_stats, to_device};
use crate::learners::MetaLearner;
use crate::parallel::{agree, solo};
use crate::precision::{Acceleration, GradScalerConfig, Precision};
use crate::train::frozen::Frozen;
use crate::train::options::Folder;
use crate::train::replica_group::ReplicaGroup;
use crate::train::trainer::MetaTrainer;
use crate::train::{Progress, TrainError};

impl<B, L, O, S, T> Run<B, L, O, S, T>
where
    B: AutodiffBackend,
    T: TaskSource,
    L: MetaLearner<B, T::Kind>,
    O: Optimizer<L, B>,
    S: LrScheduler,
{
    pub(super) fn begin(
        trainer: MetaTrainer<L, O, S, T>,
        devices: Vec<B::Device>,
    ) -> Result<Self, TrainError> {
        let options = trainer.options;
        options.check(trainer.validation.as_ref().map(|(_, tasks)| *tasks))?;
        let learner = to_device::<B, L>(drawn::<B, _>(trainer.learner), &devices[0]);
        let communicator = match &options.communicator {
            Some(communicator) => communicator.clone(),
            None => Arc::new(solo()?),
        };
        let group = ReplicaGroup { devices, communicator, reduction: options.reduction };
        let equal_sizes = trainer.source.as_ref().is_none_or(TaskSource::has_equal_sizes);
        let parts = options.parts(group.count(), equal_sizes)?;
        let precision = learner.precision();
        for (index, device) in group.devices.iter().enumerate() {
            if group.devices[..index].contains(device) {
                return Err(TrainError::SameDevice { device: format!("{device:?}") });
            }
            warn_unaccelerated(precision, precision.check::<B>(device)?, device);
        }
        let mut source = trainer.source.ok_or(TrainError::NoEpisodes)?;
        let mut validation = trainer.validation;
        let data_on = place_data::<B, T>(&mut source, &group.devices)?;
        if let Some((source, _)) = &mut validation {
            place_data::<B, T>(source, &group.devices)?;
        }
        let deferred = DeferredSteps::new(options.read_every);
        let mut run = Self {
            scaler: (precision == Precision::MixedF16)
                .then(|| options.scaler.clone().unwrap_or_else(GradScalerConfig::new).init())
                .transpose()?,
            learner: Some(learner),
            frozen: None,
            average: None,
            optimizer: trainer.optimizer,
            scheduler: trainer.scheduler,
            source,
            queue: None,
            validation,
            data_on,
            settings: Value::Null,
            options,
            group,
            parts,
            folder: None,
            progress: Progress::default(),
            best: None,
            clock: Clock::start(),
            last_loss: None,
            deferred,
            reads: 0,
        };
        let first = run.source.tasks::<B>(0..1, run.device())?;
        run.learner().check(&first)?;
        run.settings = run.all_settings();
        run.agree()?;
        run.open()?;
        let learner = run.learner.as_ref().expect("a run has a learner");
        let groups = run.options.groups.as_ref().filter(|groups| groups.freezes());
        run.frozen = groups.map(|groups| Frozen::new(groups, learner));
        Ok(run)
    }

    /// Settings that must not change between a run and its resumption.
    fn all_settings(&self) -> Value {
        let validation = self.validation.as_ref();
        let mut settings = json!({
            "backend": B::InnerBackend::name(self.device()),
            "architecture": self.learner().architecture(),
            "learner": self.learner().settings(),
            "precision": self.learner().precision(),
            "tasks": self.source.settings(),
            "meta_batch": self.options.meta_batch,
            "accumulate": self.options.accumulate,
            "clip_norm": self.options.clip_norm,
            "loss_scaling": self.scaler.as_ref().map(|_| &self.options.scaler),
            "validation": validation.map(|(source, tasks)| json!({
                "tasks": source.settings(),
                "count": tasks,
                "every": self.options.validate_every,
            })),
            "user": self.options.settings,
        });
        if let Some(decay) = self.options.average_decay {
            settings["average_decay"] = json!(decay);
        }
        if let Some(groups) = self.options.groups.as_ref().filter(|groups| groups.freezes()) {
            settings["frozen"] = groups.frozen().collect();
        }
        settings
    }

    /// The settings, and when training ends, which a resumption may change.
    pub(super) fn config(&self) -> Value {
        let mut config = self.settings.clone();
        config["steps"] = json!(self.options.steps);
        config["patience"] = json!(self.options.patience);
        config
    }

    fn agree(&self) -> Result<(), TrainError> {
        let all = json!({
            "settings": self.settings,
            "steps": self.options.steps,
            "micro_batch": self.options.micro_batch,
            "devices": self.group.devices.len(),
            "patience": self.options.patience,
            "checkpoint_every": self.options.checkpoint_every,
            "validate_every": self.options.validate_every,
            "reduction": self.options.reduction,
            "folder": self.options.folder.as_ref().map(Folder::name),
        });
        Ok(agree(&*self.group.communicator, &all)?)
    }
}

/// Where the data of tasks lies on all of these devices.
fn place_data<B: AutodiffBackend, T: TaskSource>(
    source: &mut T,
    devices: &[B::Device],
) -> Result<DataPlacement, TrainError> {
    let mut placement = DataPlacement::Host;
    for device in devices {
        // Only an accelerator is asked.
        let free = largest_bank::<B>(device).and_then(|_| memory_stats::<B>(device).free);
        placement = source.place_data::<B>(device, free.map(|free| free.0))?;
    }
    Ok(placement)
}

/// Low precision without units for it costs accuracy and gains nothing.
fn warn_unaccelerated(
    precision: Precision,
    acceleration: Acceleration,
    device: &impl std::fmt::Debug,
) {
    if precision != Precision::F32 && acceleration == Acceleration::None {
        let dtype = precision.dtype();
        log::warn!("{device:?} computes in {dtype} without units for it: expect no speed-up");
    }
}
