//! From a folder of pictures to a classifier: a pretrained network or one that was trained here, a few pictures of each class, a file.
//!
//! A [`PretrainedBackbone`] embeds pictures, a [head](crate::learners::heads) learns the classes from these embeddings, and
//! an [`AdaptedModel`] is both, with the embeddings kept, so that classes can be added and taken away.

mod backbone;
mod begun;
mod calibration;
mod changes;
mod error;
mod left_out;
mod model_file;
mod published;
mod trained;

pub use backbone::{BackboneId, PretrainedBackbone};
pub use begun::BegunModel;
pub use calibration::Calibration;
pub use changes::{THUMBNAIL_SIDE, Thumbnail, digest};
pub use error::AdaptedModelError;
pub use left_out::LeftOut;
pub use published::{PUBLISHED_WEIGHTS, PublishedFile, PublishedWeights, weights_cache};
pub use trained::{BackboneOrigin, TrainedNetwork, TrainingRun};

use std::path::Path;

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use serde::Serialize;

use crate::data::{Features, Picture, class_name};
use crate::learners::heads::{
    AnyHead, EmbeddedSupport, FittedHead, HEAD_NAMES, Head, TRAINED_ON_EPISODES,
};
use left_out::left_out;
use model_file::Content;

/// What can fail over adapted models; rustdoc shows it written out.
type Result<T = (), E = AdaptedModelError> = std::result::Result<T, E>;

/// A classifier of pictures, learned from a few of each class.
///
/// # Example
/// ```no_run
/// use burn::backend::Flex;
/// use fewshot::adapted::{AdaptedModel, PretrainedBackbone};
/// use fewshot::data::Picture;
///
/// let device = Default::default();
/// let backbone = PretrainedBackbone::<Flex>::load("dinov2-s", "dinov2_vits14_pretrain.pth", &device)?;
/// let model = AdaptedModel::of_folder(backbone, "simpleshot", "birds")?;
/// model.write("birds.fewshot")?;
///
/// let model = AdaptedModel::<Flex>::open("birds.fewshot", &device)?;
/// let predictions = model.predict(&[Picture::open("photo.jpg")?])?;
/// println!("{}: {:.2}", predictions[0].class(), predictions[0].probability());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct AdaptedModel<B: Backend> {
    begun: BegunModel<B>,
    calibration: Calibration,
    left_out: Option<LeftOut>,
    means: Vec<Vec<f64>>,
    fitted: FittedHead<B>,
}

/// What a model makes of a picture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Every class with its probability, the likeliest first.
    pub classes: Vec<(String, f64)>,
    /// How likely the picture is of a known class at all, from 0 to 1; `None` where no class has two examples to learn from
    /// how near they are.
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

impl<B: Backend> AdaptedModel<B> {
    /// The methods there are: [heads](HEAD_NAMES) that need no training on episodes.
    pub fn methods() -> Vec<&'static str> {
        HEAD_NAMES.iter().copied().filter(|name| !TRAINED_ON_EPISODES.contains(name)).collect()
    }

    /// Learns the classes of `examples`, embeddings that the backbone has made.
    ///
    /// # Errors
    /// With fewer than two classes, with an unknown method, where all embeddings are equal, where a class has no [plain name](class_name), and where
    /// a value of an embedding is above 1e15.
    pub fn adapt(
        backbone: PretrainedBackbone<B>,
        method: &str,
        examples: Features,
    ) -> Result<Self> {
        check(&examples)?;
        let head = head::<B>(method, &examples, backbone.device())?;
        if left_out::all_equal(&examples) {
            return Err(AdaptedModelError::AllEqual { embeddings: examples.rows() });
        }
        let (left_out, calibration) = left_out(&head, &examples, backbone.device());
        let (thumbnails, digests) = (vec![None; examples.rows()], vec![None; examples.rows()]);
        let method = method.to_owned();
        let begun = BegunModel { backbone, method, examples, thumbnails, digests };
        Ok(Self::of(begun, &head, calibration, left_out))
    }

    fn of(
        begun: BegunModel<B>,
        head: &AnyHead<B>,
        calibration: Calibration,
        left_out: Option<LeftOut>,
    ) -> Self {
        let rows: Vec<_> = (0..begun.examples.rows()).collect();
        let fitted = head.fit(support(&begun.examples, &rows, begun.backbone.device()));
        let means = left_out::means(&begun.examples);
        Self { begun, calibration, left_out, means, fitted }
    }

    /// Reads a model, and finds its backbone's weights as [`PretrainedBackbone::find`] does, if they are not in the file.
    ///
    /// # Errors
    /// When the file cannot be read, is no model, one of a later version or one of a single class
    /// ([`BegunModel`]), or the weights are not found.
    pub fn open(path: impl AsRef<Path>, device: &B::Device) -> Result<Self> {
        Self::open_with_weights(path, None, device)
    }

    /// The same with the weights at a place that is known.
    ///
    /// # Errors
    /// As [`open`](Self::open), when the weights are others than the model's, and when these are in its file.
    pub fn open_with_weights(
        path: impl AsRef<Path>,
        weights: Option<&Path>,
        device: &B::Device,
    ) -> Result<Self> {
        let path = path.as_ref();
        let content = Content::read(path)?;
        let head = head::<B>(&content.noted.method, &content.examples, device)?;
        let (calibration, left_out) = (content.noted.calibration, content.noted.left_out.clone());
        let begun = content.begun(path, weights, device)?;
        Ok(Self::of(begun, &head, calibration, left_out))
    }

    /// Writes the model, whole or not at all: names and embeddings of the classes, the method, and which backbone; of one that
    /// was trained here the weights, too; and the [small pictures](Self::thumbnails) that there are, up to 48 MiB.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result {
        self.begun.content(self.calibration, self.left_out.clone()).write(path.as_ref())
    }

    /// What the model makes of each picture.
    ///
    /// # Errors
    /// Where probabilities of a picture are not finite.
    pub fn predict(&self, pictures: &[Picture]) -> Result<Vec<Prediction>> {
        self.classify(&self.begun.backbone.embed(pictures).0)
    }

    /// What the model makes of pictures that its [backbone](PretrainedBackbone::embed) has embedded, one after the other.
    ///
    /// # Errors
    /// Where probabilities of a picture are not finite.
    ///
    /// # Panics
    /// When these are not whole embeddings.
    pub fn classify(&self, embeddings: &[f32]) -> Result<Vec<Prediction>> {
        let length = self.begun.examples.length();
        assert!(embeddings.len().is_multiple_of(length), "embeddings have {length} values");
        if embeddings.is_empty() {
            return Ok(Vec::new());
        }
        let shape = [1, embeddings.len() / length, length];
        let queries = TensorData::new(embeddings.to_vec(), shape);
        let queries = Tensor::<B, 3>::from_data(queries, self.begun.backbone.device());
        let logits: Vec<f32> = self.fitted.logits(queries).into_data().iter().collect();
        let names = self.class_names();
        let of_picture = |(logits, row): (&[f32], &[f32])| {
            let mut classes: Vec<_> =
                names.iter().cloned().zip(softmax(logits, self.calibration.temperature)).collect();
            classes.sort_by(|one, other| other.1.total_cmp(&one.1));
            let nearest = self.means.iter().map(|mean| left_out::cosine(mean, row));
            let nearest = nearest.fold(-1.0, f64::max);
            let known = self.calibration.known;
            let known = known.map(|[slope, offset]| calibration::sigmoid(slope * nearest + offset));
            Prediction { classes, known }
        };
        let rows = embeddings.chunks_exact(length);
        let predictions: Vec<_> =
            logits.chunks_exact(names.len()).zip(rows).map(of_picture).collect();
        let finite = |prediction: &Prediction| {
            let probabilities = prediction.classes.iter().map(|(_, probability)| *probability);
            probabilities.chain(prediction.known).all(f64::is_finite)
        };
        match predictions.iter().position(|prediction| !finite(prediction)) {
            None => Ok(predictions),
            Some(place) => {
                let (picture, pictures) = (place + 1, predictions.len());
                Err(AdaptedModelError::NotFinite { picture, pictures })
            }
        }
    }

    /// The examples whose embeddings have the largest cosines to one, by their rows in [`examples`](Self::examples), the
    /// nearest first: at most `count`.
    ///
    /// # Panics
    /// When the embedding has another length.
    pub fn nearest(&self, embedding: &[f32], count: usize) -> Vec<(usize, f64)> {
        assert_eq!(embedding.len(), self.begun.examples.length(), "values of an embedding");
        let embedding: Vec<_> = embedding.iter().copied().map(f64::from).collect();
        let cosine = |row| (row, left_out::cosine(&embedding, self.begun.examples.row(row)));
        let mut found: Vec<_> = (0..self.begun.examples.rows()).map(cosine).collect();
        found.sort_by(|one, other| other.1.total_cmp(&one.1));
        found.truncate(count);
        found
    }

    /// Names of the classes, sorted.
    pub fn class_names(&self) -> Vec<String> {
        class_names(&self.begun.examples)
    }

    /// The embeddings that the classes were learned from.
    pub fn examples(&self) -> &Features {
        &self.begun.examples
    }

    /// Name of the method.
    pub fn method(&self) -> &str {
        &self.begun.method
    }

    /// What it was learned from, with the network.
    pub fn begun(&self) -> &BegunModel<B> {
        &self.begun
    }

    /// The network.
    pub fn backbone(&self) -> &PretrainedBackbone<B> {
        &self.begun.backbone
    }

    /// Whether predictions say how likely a picture is of a known class at all.
    pub fn knows_unknown(&self) -> bool {
        self.calibration.known.is_some()
    }

    /// How examples were classified by a model learned from the others; `None` where no class has two.
    pub fn left_out(&self) -> Option<&LeftOut> {
        self.left_out.as_ref()
    }
}

/// Values of embeddings are at most so large: their squares, and sums of these, are finite.
const LARGEST: f32 = 1e15;

/// Refuses what no head learns from, and names that are not plain.
fn check(examples: &Features) -> Result {
    for class in 0..examples.classes() {
        let name = examples.class_name(class);
        class_name(name)?;
        let mut values = examples.class_values(class).iter().enumerate();
        if let Some((place, &value)) = values.find(|(_, value)| value.abs() > LARGEST) {
            let (class, row) = (name.to_owned(), place / examples.length());
            return Err(AdaptedModelError::LargeValue { class, row, value, most: LARGEST });
        }
    }
    Ok(())
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

fn class_names(examples: &Features) -> Vec<String> {
    (0..examples.classes()).map(|class| examples.class_name(class).to_owned()).collect()
}

/// Every class with its rows.
fn classes(examples: &Features) -> Vec<(String, Vec<f32>)> {
    let names = class_names(examples).into_iter().enumerate();
    names.map(|(class, name)| (name, examples.class_values(class).to_vec())).collect()
}

/// These rows as the support of one task.
fn support<B: Backend>(
    examples: &Features,
    rows: &[usize],
    device: &B::Device,
) -> EmbeddedSupport<B> {
    let (count, classes) = (rows.len(), examples.classes());
    let values: Vec<f32> = rows.iter().flat_map(|&row| examples.row(row).to_vec()).collect();
    let values = TensorData::new(values, [1, count, examples.length()]);
    let label = |row: &usize| {
        let class = (0..classes).find(|&class| examples.rows_of(class).contains(row));
        class.expect("every row is of a class") as i64
    };
    let labels = TensorData::new(rows.iter().map(label).collect::<Vec<_>>(), [1, count]);
    let labels = Tensor::<B, 2, Int>::from_data(labels, device);
    EmbeddedSupport::new(Tensor::from_data(values, device), labels, classes)
}

fn softmax(logits: &[f32], temperature: f64) -> Vec<f64> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let each = logits.iter().map(|&x| (f64::from(x - most) / temperature).exp());
    let each: Vec<_> = each.collect();
    let total: f64 = each.iter().sum();
    each.iter().map(|x| x / total).collect()
}
