//! The learner of a run, and its network.

use burn::module::AutodiffModule;
use fewshot::data::ImageShape;
use fewshot::episode::EpisodeSampler;
use fewshot::hardware::Checkpointing;
use fewshot::learners::heads::{AnyHead, PrototypeScore, Prototypes};
use fewshot::learners::{EmbeddingLearner, Maml, Plastic, ProtoNet};
use fewshot::metric::Metric;
use fewshot::models::{AnyEncoder, Classifier, Conv4Config, Downsampling, EncoderConfig, Readout};
use fewshot::plasticity::TraceRule;
use fewshot::precision::Precision;
use fewshot::train::{Checkpoint, TrainError};

use super::{InnerSettings, LearnerJob, RunSettings};
use crate::args::{CONV4, COSINE_SCALE, Sampling};
use crate::method::{Benchmark, Family, HeadTraining, Method};
use crate::prelude::*;

/// Any head on any network.
type HeadLearner<B> = EmbeddingLearner<B, AnyEncoder<B>, AnyHead<B>>;

impl RunSettings {
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
        let (features, ways) = (config.features(), self.outputs());
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
        let classifier = Classifier::new(encoder, config.features(), self.outputs(), device);
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

    /// True if a task may have any number of classes up to that of the outputs: the inner loop of proto-maml begins
    /// with a head made of the support, and then has outputs for the largest of the tasks that it learns.
    pub(super) fn takes_fewer_ways(&self) -> bool {
        self.method == Method::ProtoMaml && self.sampling == Sampling::Varied
    }

    /// Outputs of a network that has one for each class.
    pub(crate) fn outputs(&self) -> usize {
        match self.takes_fewer_ways() {
            true => EpisodeSampler::MOST_VARIED_WAYS,
            false => self.test.ways,
        }
    }

    /// Channels, height and width of its images.
    pub(super) fn image(&self) -> [usize; 3] {
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
    pub(super) fn conv4(&self) -> Conv4Config {
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
