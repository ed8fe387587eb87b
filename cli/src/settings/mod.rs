//! The options of a run, from which its learner is made.

mod augment;
mod classes;
mod classical;
mod encoder;
mod episodes;
mod inner;
mod outer;
mod start;

use burn::module::AutodiffModule;
use fewshot::data::{ClassDataset, ImageSet, ImageShape, Shades, Split, Splits};
use fewshot::episode::Protocol;
use fewshot::hardware::Checkpointing;
use fewshot::learners::heads::{AnyHead, PrototypeScore, Prototypes};
use fewshot::learners::{
    BaseClassifierConfig, EmbeddingLearner, Maml, MetaLearner, Plastic, ProtoNet, QueryNorm,
};
use fewshot::metric::Metric;
use fewshot::models::{
    AnyEncoder, BnStatistics, Classifier, Conv4Config, Downsampling, EncoderConfig, Readout,
};
use fewshot::plasticity::TraceRule;
use fewshot::precision::Precision;
use fewshot::train::{Checkpoint, Evaluation, TrainError};
use serde::{Deserialize, Serialize};

pub(crate) use augment::AugmentSettings;
pub(crate) use classes::RunClasses;
pub(crate) use encoder::EncoderSettings;
pub(crate) use episodes::{
    LISTED, TestRule, VARIED, number_of_episodes, refuse_sizes, refuse_sizes_of_training, sampled,
};
pub(crate) use inner::InnerSettings;
pub(crate) use outer::OuterStep;
pub(crate) use start::{Start, StartedFrom};

use crate::args::{BatchNormRule, CONV4, COSINE_SCALE, Sampling};
use crate::checkpoint;
use crate::data_spec::{DataSpec, FolderOptions, ImageSpec, Part};
use crate::method::{Benchmark, Family, HeadTraining, Method};
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

/// Any head on any network.
type HeadLearner<B> = EmbeddingLearner<B, AnyEncoder<B>, AnyHead<B>>;

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
            true => self.test.ways.checked_mul(config.features()),
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
        let splits = self.data.open(self.split, self.folder)?;
        let images = match (self.source, &self.classes) {
            (Source::Own, Some(classes)) => classes.images(&splits, part)?,
            (Source::Own, None) => {
                self.warn_of_unknown_classes();
                chosen(splits, part)
            }
            (Source::SameFormat, Some(classes)) if part != Part::Train => {
                let images = chosen(splits, part);
                classes.warn_of_trained(&images);
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

    /// Runs `job` with the learner, its parameters freshly drawn.
    pub(crate) fn with_learner<B: AutodiffBackend>(
        &self,
        hardware: &HardwareManager<B::InnerBackend>,
        checkpointing: Checkpointing,
        job: impl LearnerJob,
    ) -> Result {
        let device = hardware.device();
        let (config, encoder) = self.drawn::<B>(device)?;
        let encoder = match &self.encoder {
            Some(settings) => settings.begun(encoder, device)?,
            None => encoder,
        };
        let (features, ways) = (config.features(), self.test.ways);
        if self.method == Method::Plastic {
            let learner = Plastic::new(encoder, features, ways, TraceRule::default(), device);
            return job.run::<B, _>(hardware, learner);
        }
        if let Some(learner) = self.on_embeddings(encoder.clone(), &config, device)? {
            return job.run::<B, _>(hardware, learner);
        }
        let Some(inner) = self.inner else {
            return job
                .run::<B, _>(hardware, self.proto_net(encoder).with_checkpointing(checkpointing));
        };
        let learner = self.gradient_based(inner, Classifier::new(encoder, features, ways, device));
        job.run::<B, _>(hardware, learner?)
    }

    fn gradient_based<B: AutodiffBackend>(
        &self,
        inner: InnerSettings,
        classifier: Classifier<B, AnyEncoder<B>>,
    ) -> Result<Maml<B, Classifier<B, AnyEncoder<B>>>> {
        match self.method {
            Method::ProtoMaml => inner.set(Maml::prototypical(classifier, inner.inner_loop())),
            method => inner.learner(method, classifier),
        }
    }

    fn drawn<B: Backend>(&self, device: &B::Device) -> Result<(EncoderConfig, AnyEncoder<B>)> {
        let config = self.network()?;
        self.precision.check::<B>(device).map_err(TrainError::from)?;
        B::seed(device, self.seed);
        let encoder = config.init(device);
        Ok((config, encoder))
    }

    fn proto_net<B: Backend>(&self, encoder: AnyEncoder<B>) -> ProtoNet<B, AnyEncoder<B>> {
        let head = match self.metric {
            Metric::SquaredEuclidean => Prototypes::new(),
            Metric::Cosine => Prototypes { score: PrototypeScore::Cosine, scale: COSINE_SCALE },
        };
        EmbeddingLearner::with_head(encoder, head)
    }

    /// The learner of a method that is a head on embeddings and can be trained.
    fn on_embeddings<B: Backend>(
        &self,
        encoder: AnyEncoder<B>,
        config: &EncoderConfig,
        device: &B::Device,
    ) -> Result<Option<HeadLearner<B>>> {
        let is_head =
            matches!(self.method.family(), Family::Head(of) if of != HeadTraining::Nothing);
        if !is_head {
            return Ok(None);
        }
        let Some(head) = head_on(self.method, config, device)? else { return Ok(None) };
        let learner = EmbeddingLearner::with_head(encoder, head);
        Ok(Some(match &self.classical {
            Some(classes) => learner.with_base_classifier(classes.init(device)),
            None => learner,
        }))
    }

    /// The encoder that was trained, to put another head on.
    pub(crate) fn encoder<B: AutodiffBackend>(
        &self,
        checkpoint: &Checkpoint,
        device: &B::Device,
    ) -> Result<AnyEncoder<B::InnerBackend>> {
        let (config, encoder) = self.drawn::<B>(device)?;
        if let Some(learner) = self.on_embeddings(encoder.clone(), &config, device)? {
            return Ok(checkpoint.load::<B, _, _>(learner, device)?.encoder().valid());
        }
        if self.method == Method::Protonet {
            let learner = self.proto_net(encoder);
            return Ok(checkpoint.load::<B, _, _>(learner, device)?.encoder().valid());
        }
        let method = self.method;
        Err(usage!(
            "the encoder of {method} was trained to adapt: no other method can be put on it"
        ))
    }

    /// The encoder of a gradient-based learner as its inner loop begins with it. It has no running averages.
    pub(crate) fn body<B: AutodiffBackend>(
        &self,
        checkpoint: &Checkpoint,
        device: &B::Device,
    ) -> Result<AnyEncoder<B::InnerBackend>> {
        let method = self.method;
        let inner = self.inner.ok_or_else(|| usage!("{method} has no inner loop"))?;
        let (config, encoder) = self.drawn::<B>(device)?;
        let classifier = Classifier::new(encoder, config.features(), self.test.ways, device);
        let learner = self.gradient_based(inner, classifier)?;
        Ok(checkpoint.load::<B, _, _>(learner, device)?.network().encoder.valid())
    }

    /// The encoder of the run at `path`, whatever its method, as long as it embeds images by itself.
    pub(crate) fn embedder<B: AutodiffBackend>(
        &self,
        checkpoint: &Checkpoint,
        path: &Path,
        device: &B::Device,
    ) -> Result<AnyEncoder<B::InnerBackend>> {
        let name = path.display();
        match self.method {
            Method::Plastic => Err(usage!(
                "{name} was trained by plastic, whose network learns by connections of its own: no other method \
                 can be put on it"
            )),
            Method::MamlPlusPlus => Err(usage!(
                "{name} was trained by maml++, which normalises anew in every inner step: its network embeds \
                 nothing without them"
            )),
            _ if self.inner.is_some() => self.body::<B>(checkpoint, device),
            _ => self.encoder::<B>(checkpoint, device),
        }
    }

    /// Tells a network that has an output for each class, so that all tasks must have the same number of ways.
    pub(crate) fn has_outputs(&self) -> bool {
        self.inner.is_some() || self.method == Method::Plastic
    }

    /// Channels, height and width of its images.
    fn image(&self) -> [usize; 3] {
        let ImageShape { channels, height, width } = self.image;
        [channels, height, width]
    }

    pub(crate) fn network(&self) -> Result<EncoderConfig> {
        let own = || EncoderConfig::Conv4(self.conv4());
        let config = self.encoder.as_ref().map_or_else(own, |encoder| encoder.network.clone());
        let readout = match self.method.compares_places() {
            true => Readout::Flatten,
            false => Readout::Average,
        };
        let config = config.with_readout(readout);
        if let EncoderConfig::Conv4(config) = &config
            && !config.fits()
        {
            let (image, blocks) = (self.image, config.blocks);
            return Err(failed!("images of {image} are too small for {blocks} blocks"));
        }
        self.check_learner(&config)?;
        config.check().map_err(|error| failed!("{error}"))?;
        Ok(config)
    }

    /// Refuses a network that the method or the precision is not for.
    fn check_learner(&self, config: &EncoderConfig) -> Result {
        let (method, name) = (self.method, config.name());
        if matches!(config, EncoderConfig::Conv4(_)) {
            return Ok(());
        }
        if method == Method::Cavia {
            return Err(usage!("cavia adapts a context, which {CONV4} has and {name} has not"));
        }
        if self.precision != Precision::F32 {
            return Err(usage!("--precision is for {CONV4}: {name} computes in f32"));
        }
        maps(method, config).map(drop)
    }

    /// The convolution blocks that the method's paper has on such images.
    fn conv4(&self) -> Conv4Config {
        let config = Conv4Config::new(self.image())
            .with_precision(self.precision)
            .with_context(if self.method == Method::Cavia { 100 } else { 0 });
        match (self.inner, Benchmark::for_image(self.image)) {
            (None, _) => config,
            (Some(_), Benchmark::Omniglot) => {
                // As the authors of implicit MAML have it.
                let flat = self.method == Method::Imaml;
                let readout = if flat { Readout::Flatten } else { Readout::Average };
                config.with_downsampling(Downsampling::Stride).with_readout(readout)
            }
            (Some(_), _) => config.with_channels(32),
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

/// The head of this method for the features of a network; `None` for a method that is no head.
pub(crate) fn head_on<B: Backend>(
    method: Method,
    network: &EncoderConfig,
    device: &B::Device,
) -> Result<Option<AnyHead<B>>> {
    Ok(AnyHead::with_name(&method.head_name(), maps(method, network)?, device))
}

/// The shape of the maps that an embedding is made of, `[d, 1, 1]` of a plain vector.
fn maps(method: Method, network: &EncoderConfig) -> Result<[usize; 3]> {
    match network.maps() {
        Some(maps) => Ok(maps),
        None if method.compares_places() => {
            let name = network.name();
            Err(usage!(
                "{method} compares places of maps, which {CONV4} and residual networks have, and the features of {name} have not"
            ))
        }
        None => Ok([network.features(), 1, 1]),
    }
}

pub(crate) fn chosen(splits: Splits, part: Part) -> ImageSet {
    match part {
        Part::Test => splits.test,
        Part::Validation => splits.validation,
        Part::Train => splits.train,
    }
}
