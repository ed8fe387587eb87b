//! A classifier: a network of pictures if there is one, the embeddings of its examples, and the head that is learned from these.

use std::io;
use std::path::Path;

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use serde::Serialize;

use super::calibration::{self, Calibration};
use super::cross_validation::{self, CrossValidation, cross_validate};
use super::examples::{check, class_names, support};
use super::model_file::{Content, Weights};
use super::unfitted::UnfittedModel;
use super::{AdaptedModelError, EmbeddingSource, PretrainedBackbone, Result};
use crate::data::{Features, Picture};
use crate::learners::heads::{
    AnyHead, EmbeddedSupport, FittedHead, HEAD_NAMES, Head, LogitFormula, NoFormula,
    TRAINED_ON_EPISODES,
};

/// A classifier of pictures, learned from a few of each class; or of [embeddings of another
/// program](EmbeddingSource::OtherProgram), whose [pictures](Self::predict) are refused and whose
/// [embeddings](Self::classify) are classified.
///
/// # Example
/// ```no_run
/// use burn::backend::Flex;
/// use fewshot::adapted::{AdaptedModel, PretrainedBackbone};
/// use fewshot::data::Picture;
///
/// let device = Default::default();
/// let backbone = PretrainedBackbone::<Flex>::load("dinov2-s", "dinov2_vits14_pretrain.pth", &device)?;
/// let model = AdaptedModel::from_folder(backbone, "simpleshot", "birds")?;
/// model.write("birds.fewshot")?;
///
/// let model = AdaptedModel::<Flex>::open("birds.fewshot", &device)?;
/// let predictions = model.predict(&[Picture::open("photo.jpg")?])?;
/// println!("{}: {:.2}", predictions[0].class(), predictions[0].probability());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AdaptedModel<B: Backend> {
    pub(super) unfitted: UnfittedModel<B>,
    calibration: Calibration,
    cross_validation: Option<CrossValidation>,
    means: Vec<Vec<f64>>,
    fitted: FittedHead<B>,
}

/// Classification of a picture or an embedding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Every class with its probability, the likeliest first.
    pub classes: Vec<(String, f64)>,
    /// Probability that the picture is of a known class at all, from 0 to 1; `None` where no class has two
    /// examples, whose distance says how near is near enough.
    pub known: Option<f64>,
}

impl Prediction {
    /// The likeliest class.
    pub fn class(&self) -> &str {
        &self.classes[0].0
    }

    /// The probability of the likeliest class.
    pub fn probability(&self) -> f64 {
        self.classes[0].1
    }
}

impl<B: Backend> Clone for AdaptedModel<B> {
    /// The same model, whose head is fitted again.
    fn clone(&self) -> Self {
        let (unfitted, head) = (self.unfitted.clone(), self.head());
        Self::fit(unfitted, &head, self.calibration, self.cross_validation.clone())
    }
}

impl<B: Backend> AdaptedModel<B> {
    /// The methods there are: [heads](HEAD_NAMES) that need no training on episodes.
    pub fn methods() -> Vec<&'static str> {
        HEAD_NAMES.iter().copied().filter(|name| !TRAINED_ON_EPISODES.contains(name)).collect()
    }

    /// Learns the classes of `examples`, embeddings of this source.
    ///
    /// # Errors
    /// With fewer than two classes, with an unknown method, where all embeddings are equal, where a class has no [plain name](crate::data::class_name), and where
    /// a value of an embedding is above 1e15.
    pub fn adapt(
        source: impl Into<EmbeddingSource<B>>,
        method: &str,
        examples: Features,
    ) -> Result<Self> {
        let source = source.into();
        check(&examples)?;
        let head = head::<B>(method, &examples, source.device())?;
        if cross_validation::all_equal(&examples) {
            return Err(AdaptedModelError::AllEqual { embeddings: examples.rows() });
        }
        let (cross_validation, calibration) = cross_validate(&head, &examples, source.device());
        let (thumbnails, digests) = (vec![None; examples.rows()], vec![None; examples.rows()]);
        let method = method.to_owned();
        let unfitted = UnfittedModel { source, method, examples, thumbnails, digests };
        Ok(Self::fit(unfitted, &head, calibration, cross_validation))
    }

    fn fit(
        unfitted: UnfittedModel<B>,
        head: &AnyHead<B>,
        calibration: Calibration,
        cross_validation: Option<CrossValidation>,
    ) -> Self {
        let fitted = head.fit(every_row(&unfitted.examples, unfitted.source.device()));
        let means = cross_validation::means(&unfitted.examples);
        Self { unfitted, calibration, cross_validation, means, fitted }
    }

    /// Reads a model, and finds its backbone's weights as [`PretrainedBackbone::find`] does, if it has a backbone and they are
    /// not in the file.
    ///
    /// # Errors
    /// When the file cannot be read, is no model, one of a later version or one of a single class
    /// ([`UnfittedModel`]), or the weights are not found.
    pub fn open(path: impl AsRef<Path>, device: &B::Device) -> Result<Self> {
        Self::open_with_weights(path, None, device)
    }

    /// The same with the weights at a place that is known.
    ///
    /// # Errors
    /// The reasons of [`open`](Self::open), and weights that are not the model's, are in its file, or are for a model without a
    /// network.
    pub fn open_with_weights(
        path: impl AsRef<Path>,
        weights: Option<&Path>,
        device: &B::Device,
    ) -> Result<Self> {
        let path = path.as_ref();
        Self::from_content(Content::read(path)?, path, weights.into(), device)
    }

    /// Reads the content of a model's file, whose name is `name`. The weights of a published network are those of
    /// `network`; where the file has its own, `network` is of no account.
    ///
    /// # Errors
    /// When the content is no model, one of a later version or one of a single class, and when the network is another
    /// than the model's, or absent.
    pub fn decode(
        content: &[u8],
        name: impl AsRef<Path>,
        network: Option<&PretrainedBackbone<B>>,
        device: &B::Device,
    ) -> Result<Self> {
        let name = name.as_ref();
        Self::from_content(Content::decode(content, name)?, name, Weights::Loaded(network), device)
    }

    fn from_content(
        content: Content,
        path: &Path,
        weights: Weights<'_, B>,
        device: &B::Device,
    ) -> Result<Self> {
        let head = head::<B>(&content.metadata.method, &content.examples, device)?;
        let (calibration, cross_validation) =
            (content.metadata.calibration, content.metadata.cross_validation.clone());
        let unfitted = content.unfitted(path, weights, device)?;
        Ok(Self::fit(unfitted, &head, calibration, cross_validation))
    }

    /// Writes the model, whole or not at all: names and embeddings of the classes, the method, and which backbone, if any; of one that
    /// was trained here the weights, too; and the [small pictures](Self::thumbnails) that there are, up to 48 MiB.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result {
        self.unfitted.content(self.calibration, self.cross_validation.clone()).write(path.as_ref())
    }

    /// The content of the [file](Self::write).
    ///
    /// # Errors
    /// When there is more than a file can hold.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        self.unfitted.content(self.calibration, self.cross_validation.clone()).encode()
    }

    /// Classifies pictures.
    ///
    /// # Errors
    /// Without a network, and where probabilities of a picture are not finite.
    pub fn predict(&self, pictures: &[Picture]) -> Result<Vec<Prediction>> {
        self.classify(&self.unfitted.source.picture_network()?.embed(pictures).0)
    }

    /// Classifies embeddings of the model's [source](EmbeddingSource), as its [backbone](PretrainedBackbone::embed) makes them of
    /// pictures; they follow one another.
    ///
    /// # Errors
    /// Where probabilities of an embedding are not finite.
    ///
    /// # Panics
    /// When these are not whole embeddings.
    pub fn classify(&self, embeddings: &[f32]) -> Result<Vec<Prediction>> {
        let length = self.unfitted.examples.length();
        assert!(embeddings.len().is_multiple_of(length), "embeddings have {length} values");
        if embeddings.is_empty() {
            return Ok(Vec::new());
        }
        let shape = [1, embeddings.len() / length, length];
        let queries = TensorData::new(embeddings.to_vec(), shape);
        let queries = Tensor::<B, 3>::from_data(queries, self.unfitted.source.device());
        let logits: Vec<f32> = self.fitted.logits(queries).into_data().iter().collect();
        let names = self.class_names();
        let prediction = |(logits, row): (&[f32], &[f32])| {
            let mut classes: Vec<_> =
                names.iter().cloned().zip(softmax(logits, self.calibration.temperature)).collect();
            classes.sort_by(|one, other| other.1.total_cmp(&one.1));
            let nearest = self.means.iter().map(|mean| cross_validation::cosine(mean, row));
            let nearest = nearest.fold(-1.0, f64::max);
            let known = self.calibration.known;
            let known = known.map(|[slope, offset]| calibration::sigmoid(slope * nearest + offset));
            Prediction { classes, known }
        };
        let rows = embeddings.chunks_exact(length);
        let predictions: Vec<_> =
            logits.chunks_exact(names.len()).zip(rows).map(prediction).collect();
        let finite = |prediction: &Prediction| {
            let probabilities = prediction.classes.iter().map(|(_, probability)| *probability);
            probabilities.chain(prediction.known).all(f64::is_finite)
        };
        match predictions.iter().position(|prediction| !finite(prediction)) {
            None => Ok(predictions),
            Some(place) => {
                let (embedding, embeddings) = (place + 1, predictions.len());
                Err(AdaptedModelError::NotFinite { embedding, embeddings })
            }
        }
    }

    /// The examples whose embeddings have the largest cosines to one, by their rows in [`examples`](Self::examples), the
    /// nearest first: at most `count`.
    ///
    /// # Panics
    /// When the embedding has another length.
    pub fn nearest(&self, embedding: &[f32], count: usize) -> Vec<(usize, f64)> {
        assert_eq!(embedding.len(), self.unfitted.examples.length(), "values of an embedding");
        let embedding: Vec<_> = embedding.iter().copied().map(f64::from).collect();
        let cosine =
            |row| (row, cross_validation::cosine(&embedding, self.unfitted.examples.row(row)));
        let mut rows: Vec<_> = (0..self.unfitted.examples.rows()).map(cosine).collect();
        rows.sort_by(|one, other| other.1.total_cmp(&one.1));
        rows.truncate(count);
        rows
    }

    /// Names of the classes, sorted.
    pub fn class_names(&self) -> Vec<String> {
        class_names(&self.unfitted.examples)
    }

    /// The embeddings that the classes were learned from.
    pub fn examples(&self) -> &Features {
        &self.unfitted.examples
    }

    /// Name of the method.
    pub fn method(&self) -> &str {
        &self.unfitted.method
    }

    /// The examples that it was learned from, with their source.
    pub fn unfitted(&self) -> &UnfittedModel<B> {
        &self.unfitted
    }

    /// The network; none of a model of embeddings that another program has made.
    pub fn backbone(&self) -> Option<&PretrainedBackbone<B>> {
        self.unfitted.source.network()
    }

    /// The map from its logits to probabilities.
    pub fn calibration(&self) -> Calibration {
        self.calibration
    }

    /// The sum of the examples of each class, in the order of the [names](Self::class_names): the directions of their means, to
    /// which a picture of a known class is near.
    pub fn class_directions(&self) -> &[Vec<f64>] {
        &self.means
    }

    /// The logits of its classes as a formula of an embedding.
    ///
    /// # Errors
    /// For a method that is none.
    pub fn formula(&self) -> Result<LogitFormula<B>, NoFormula> {
        let UnfittedModel { source, examples, .. } = &self.unfitted;
        self.head().formula(every_row(examples, source.device()))
    }

    fn head(&self) -> AnyHead<B> {
        let UnfittedModel { source, method, examples, .. } = &self.unfitted;
        let head = AnyHead::with_name(method, [examples.length(), 1, 1], source.device());
        head.expect("the model has been fitted by this method")
    }

    /// `true` where predictions have the probability of a known class at all.
    pub fn knows_unknown(&self) -> bool {
        self.calibration.known.is_some()
    }

    /// Classifications of examples by models of the others; `None` where no class has two.
    pub fn cross_validation(&self) -> Option<&CrossValidation> {
        self.cross_validation.as_ref()
    }
}

/// The head of this name for embeddings such as these.
fn head<B: Backend>(method: &str, examples: &Features, device: &B::Device) -> Result<AnyHead<B>> {
    if examples.classes() < 2 {
        return Err(AdaptedModelError::TooFewClasses { classes: examples.classes() });
    }
    let known = AdaptedModel::<B>::methods();
    let named = known.contains(&method).then_some(method);
    let head = named.and_then(|name| AnyHead::with_name(name, [examples.length(), 1, 1], device));
    head.ok_or_else(|| AdaptedModelError::UnknownMethod { name: method.to_owned(), known })
}

/// All examples as the support of one task.
fn every_row<B: Backend>(examples: &Features, device: &B::Device) -> EmbeddedSupport<B> {
    let rows: Vec<_> = (0..examples.rows()).collect();
    support(examples, &rows, device)
}

fn softmax(logits: &[f32], temperature: f64) -> Vec<f64> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let each = logits.iter().map(|&x| (f64::from(x - most) / temperature).exp());
    let each: Vec<_> = each.collect();
    let total: f64 = each.iter().sum();
    each.iter().map(|x| x / total).collect()
}
