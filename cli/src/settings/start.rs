//! The run that a training starts from.

use fewshot::hardware::Checkpointing;
use fewshot::learners::MetaLearner;
use fewshot::models::nn::draw;
use fewshot::models::{EncoderConfig, Readout};
use fewshot::precision::Precision;
use fewshot::train::{Checkpoint, NamedParameters};
use serde::{Deserialize, Serialize};

use super::encoder::{absolute, is_same_place};
use super::{EncoderSettings, LearnerJob, RunSettings};
use crate::checkpoint;
use crate::method::Method;
use crate::prelude::*;

/// The run that a training started from, as its settings keep it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StartedFrom {
    /// Run folder or checkpoint, an absolute path.
    run: PathBuf,
    method: Method,
    /// Steps that the other training had made.
    step: u64,
    /// SHA-256 of the checkpoint, in hexadecimal digits.
    sha256: String,
}

impl StartedFrom {
    /// True if `run` is the path of this run. Earlier versions kept paths as they were given.
    pub(crate) fn is(&self, run: &Path) -> bool {
        is_same_place(&absolute(&self.run), &absolute(run))
    }
}

/// The checkpoint that a training starts from.
pub(crate) struct Start {
    from: StartedFrom,
    checkpoint: Checkpoint,
    settings: RunSettings,
}

impl Start {
    /// Reads the run that was given.
    pub(crate) fn read(run: &Path) -> Result<Self> {
        let path = checkpoint::file(run);
        let checkpoint = Checkpoint::read(&path)?;
        if checkpoint::is_sinusoid_run(&checkpoint) {
            return Err(usage!("--from {}: it is a run on sinusoids", run.display()));
        }
        let settings = RunSettings::from_checkpoint(&checkpoint, &path, None, None)?;
        let from = StartedFrom {
            run: absolute(run),
            method: settings.method,
            step: checkpoint.progress().step,
            sha256: checkpoint.sha256(),
        };
        Ok(Self { from, checkpoint, settings })
    }

    pub(crate) fn origin(&self) -> StartedFrom {
        self.from.clone()
    }

    /// The encoder of the other run, where it is not its method's own Conv-4.
    pub(crate) fn encoder(&self, precision: Precision) -> Option<EncoderSettings> {
        let mut encoder = self.settings.encoder.clone()?;
        encoder.network = encoder.network.with_precision(precision);
        Some(encoder)
    }

    /// Compares the networks of both runs.
    ///
    /// # Errors
    /// If the other run has other images or another network.
    pub(crate) fn check(&self, settings: &RunSettings) -> Result {
        let run = self.from.run.display();
        let (there, here) = (self.settings.image, settings.image);
        if there != here {
            return Err(failed!(
                "--from {run}: its network takes images of {there}, not of {here}"
            ));
        }
        let same_data =
            self.settings.data == settings.data && self.settings.split == settings.split;
        if same_data && self.settings.train_on_validation && !settings.train_on_validation {
            print_status(format_args!(
                "warning: {run} was trained on the validation classes, so validation here says little"
            ));
        }
        let theirs = RunSettings { precision: settings.precision, ..self.settings.clone() };
        // Weights are the same, whatever is made of the last maps.
        let weights = |network: EncoderConfig| network.with_readout(Readout::Average);
        let theirs = weights(theirs.network()?.with_precision(settings.precision));
        match theirs == weights(settings.network()?) {
            true => Ok(()),
            false => {
                let (there, here) = (self.settings.method, settings.method);
                Err(failed!("--from {run}: its network, of {there}, is not that of {here}"))
            }
        }
    }

    /// `learner` with the encoder of the other run, and with all else that fits if the method is the same.
    pub(crate) fn load<B: AutodiffBackend, L: MetaLearner<B>>(
        &self,
        hardware: &HardwareManager<B::InnerBackend>,
        learner: L,
        settings: &RunSettings,
    ) -> Result<L> {
        // The other learner is drawn by another seed.
        draw::<B, L>(&learner);
        let mut named = None;
        let collect = Collect { checkpoint: &self.checkpoint, named: &mut named };
        self.settings.with_learner::<B>(hardware, Checkpointing::Nothing, collect)?;
        B::seed(hardware.device(), settings.seed);
        let named = named.expect("the learner of a run runs the job");
        let StartedFrom { run, method, step, .. } = &self.from;
        let run = run.display();
        let learner = named
            .load_encoder::<B, L>(learner)
            .map_err(|error| failed!("--from {run}: {error}"))?;
        let (learner, rest) = match *method == settings.method {
            false => (learner, "the rest is drawn".to_owned()),
            true => match named.load_fitting::<B, L>(learner) {
                (learner, left) if left.is_empty() => (learner, "the rest too".to_owned()),
                (learner, left) => (learner, format!("drawn are {}", left.join(", "))),
            },
        };
        print_status(format_args!("encoder of {run}, {method} after step {step}; {rest}"));
        Ok(learner)
    }
}

/// Names the parameters of a checkpoint.
struct Collect<'a> {
    checkpoint: &'a Checkpoint,
    named: &'a mut Option<NamedParameters>,
}

impl LearnerJob for Collect<'_> {
    fn run<B: AutodiffBackend, L: MetaLearner<B>>(
        self,
        hardware: &HardwareManager<B::InnerBackend>,
        learner: L,
    ) -> Result {
        let learner = self.checkpoint.load::<B, _, _>(learner, hardware.device())?;
        *self.named = Some(NamedParameters::of::<B, L>(&learner));
        Ok(())
    }
}
