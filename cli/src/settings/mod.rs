//! The options of a run, from which its learner is made.

mod augment;
mod classes;
mod classical;
mod encoder;
mod episodes;
mod inner;
mod learner;
mod outer;
mod start;

use fewshot::data::{ClassDataset, ImageSet, ImageShape, Shades, Split, Splits};
use fewshot::episode::Protocol;
use fewshot::learners::{BaseClassifierConfig, MetaLearner, QueryNorm};
use fewshot::metric::Metric;
use fewshot::models::BnStatistics;
use fewshot::precision::Precision;
use fewshot::train::{Checkpoint, Evaluation};
use serde::{Deserialize, Serialize};

pub(crate) use augment::AugmentSettings;
pub(crate) use classes::RunClasses;
pub(crate) use encoder::EncoderSettings;
pub(crate) use episodes::{
    LISTED, TestRule, VARIED, number_of_episodes, refuse_sizes, refuse_sizes_of_training, sampled,
};
pub(crate) use inner::InnerSettings;
pub(crate) use learner::head_on;
pub(crate) use outer::OuterStep;
pub(crate) use start::{Start, StartedFrom};

use crate::args::{BatchNormRule, Sampling};
use crate::checkpoint;
use crate::data_spec::{DataSpec, FolderOptions, ImageSpec, Part};
use crate::method::Method;
use crate::prelude::*;

/// The options of a run that its resumption must repeat and its test can look up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunSettings {
    pub(crate) method: Method,
    pub(crate) data: ImageSpec,
    pub(crate) split: Split,
    pub(crate) folder: FolderOptions,
    pub(crate) image: ImageShape,
    pub(crate) test: Protocol,
    #[serde(default, skip_serializing_if = "Sampling::is_fixed")]
    pub(crate) sampling: Sampling,
    pub(crate) metric: Metric,
    pub(crate) inner: Option<InnerSettings>,
    #[serde(default)]
    pub(crate) classical: Option<BaseClassifierConfig>,
    /// Absent without augmentation.
    #[serde(default, skip_serializing_if = "AugmentSettings::is_default")]
    pub(crate) augment: AugmentSettings,
    #[serde(flatten)]
    pub(crate) outer: OuterStep,
    #[serde(default)]
    pub(crate) precision: Precision,
    pub(crate) seed: u64,
    /// Absent where it is the method's own Conv-4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) encoder: Option<EncoderSettings>,
    /// Absent where data comes from no files that could change, and in runs that do not keep them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) classes: Option<RunClasses>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<StartedFrom>,
    /// Absent where validation classes are not learned from.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) train_on_validation: bool,
    #[serde(skip)]
    pub(crate) source: Source,
}

/// The data that [`RunSettings::images`] reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Source {
    /// The run's own.
    #[default]
    Own,
    /// Other data in the same format.
    SameFormat,
    OtherFormat,
}

/// Work that is generic over the learner.
pub(crate) trait LearnerJob {
    fn run<B: AutodiffBackend, L: MetaLearner<B>>(
        self,
        hardware: &HardwareManager<B::InnerBackend>,
        learner: L,
    ) -> Result;
}

impl RunSettings {
    /// Settings of the run that the checkpoint at `path` belongs to, with other data or another split if they are
    /// given.
    pub(crate) fn from_checkpoint(
        checkpoint: &Checkpoint,
        path: &Path,
        data: Option<&DataSpec>,
        split: Option<Split>,
    ) -> Result<Self> {
        let mut settings: Self = checkpoint::settings(checkpoint, path)?;
        settings.check(checkpoint, path)?;
        match data {
            None => {}
            Some(DataSpec::Images(data)) if data.clone().absolute() == settings.data => {}
            Some(DataSpec::Images(data)) => {
                settings.source = match data.name() == settings.data.name() {
                    true => Source::SameFormat,
                    false => Source::OtherFormat,
                };
                if !matches!(settings.data, ImageSpec::Files(..)) {
                    settings.folder = data.default_options()?;
                }
                settings.data = data.clone();
            }
            Some(DataSpec::Sinusoids) => {
                return Err(usage!("{} takes images, not sinusoids", path.display()));
            }
        }
        settings.data.refuse_other_options(split, false)?;
        settings.split = split.unwrap_or(settings.split);
        Ok(settings)
    }

    /// Compares the network of these settings with what the checkpoint holds, before anything is allocated for it.
    fn check(&self, checkpoint: &Checkpoint, path: &Path) -> Result {
        let config = self.network()?;
        let outputs = match self.has_outputs() {
            true => self.outputs().checked_mul(config.features()),
            false => Some(0),
        };
        let needed = config.parameters().zip(outputs).and_then(|(of, more)| of.checked_add(more));
        let needed = needed.and_then(|values| values.checked_mul(size_of::<f32>()));
        let size = checkpoint.size_of("learner");
        match needed.is_some_and(|needed| needed <= size) {
            true => Ok(()),
            false => Err(failed!(
                "{} holds {size} bytes of parameters, too few for the network that it says it has",
                path.display()
            )),
        }
    }

    /// Classes of the data, as images of the shape that the network takes.
    pub(crate) fn images(&self, part: Part) -> Result<ImageSet> {
        if self.train_on_validation && part == Part::Validation && self.source == Source::Own {
            print_status(format_args!("warning: the run was trained on its validation classes"));
        }
        let splits = self.data.open(self.split, self.folder)?;
        let images = match (self.source, &self.classes) {
            (Source::Own, Some(classes)) => classes.images(&splits, part)?,
            (Source::Own, None) => {
                self.warn_of_unknown_classes();
                chosen(splits, part)
            }
            (Source::SameFormat, Some(classes)) if part != Part::Train => {
                let images = chosen(splits, part);
                classes.warn_of_trained(&images, self.train_on_validation);
                images
            }
            _ => chosen(splits, part),
        };
        let (expected, image, data) = (self.image, images.image_shape(), &self.data);
        if image != expected {
            return Err(failed!("the checkpoint takes images of {expected}, {data} has {image}"));
        }
        Ok(images)
    }

    /// Treatment of shades that turns pictures into images like those of the data.
    pub(crate) fn shades(&self) -> Shades {
        self.folder.shades.unwrap_or_else(|| self.data.shades())
    }

    /// Warns if the data may have changed and the run does not keep its classes.
    pub(crate) fn warn_of_unknown_classes(&self) {
        if self.classes.is_none() && matches!(self.data, ImageSpec::Files(..)) {
            let data = &self.data;
            print_status(format_args!(
                "warning: the run does not say which classes of {data} it was trained on, so its test classes may be \
                 among them"
            ));
        }
    }

    /// The protocol of a test, as fields of a report.
    pub(crate) fn test_protocol(&self, evaluation: &Evaluation) -> Value {
        let mut protocol = json!({
            "method": self.method,
            "data": self.data.name(),
            "split": self.data.split_name(self.split),
            "classes": "test",
            "episodes": evaluation.episodes,
            "transductive": evaluation.transductive,
            "batch_norm": match evaluation.query_norm {
                QueryNorm::Together => json!(evaluation.batch_norm),
                QueryNorm::Alone => json!("support"),
            },
            "ci": "1.96 * std / sqrt(episodes)",
        });
        join(&mut protocol, json!(evaluation.sizes));
        if self.train_on_validation {
            protocol["trained_on"] = json!(["train", "validation"]);
        }
        if evaluation.views > 1 {
            protocol["views"] = evaluation.views.into();
        }
        protocol
    }

    pub(crate) fn statistics(&self, rule: Option<BatchNormRule>) -> Result<BnStatistics> {
        let method = self.method;
        match (self.inner, rule) {
            (Some(_), Some(BatchNormRule::Running)) => Err(usage!(
                "{method} gathers no running averages, so --batch-norm running is not for it"
            )),
            (None, Some(BatchNormRule::Support)) => {
                Err(usage!("--batch-norm support is for maml and its relatives, not for {method}"))
            }
            (Some(_), _) | (None, Some(BatchNormRule::Batch)) => Ok(BnStatistics::Batch),
            (None, None | Some(BatchNormRule::Running)) => Ok(BnStatistics::Running),
        }
    }
}

pub(crate) fn chosen(splits: Splits, part: Part) -> ImageSet {
    match part {
        Part::Test => splits.test,
        Part::Validation => splits.validation,
        Part::Train => splits.train,
    }
}
