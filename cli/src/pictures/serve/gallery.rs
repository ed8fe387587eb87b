//! The classes that are served, with their examples.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fewshot::adapted::{
    AdaptedModel, AdaptedModelError, EmbeddingSource, PretrainedBackbone, Thumbnail, UnfittedModel,
};
use fewshot::data::{DataError, Features, Preparation};
use fewshot::hardware::Bytes;

use crate::pictures::describe;
use crate::prelude::*;

/// Examples of all classes, at most.
const MOST_EXAMPLES: usize = 10_000;

/// Examples that are named with a prediction.
const NEAREST: usize = 3;

#[derive(Debug, thiserror::Error)]
pub(super) enum GalleryError {
    #[error("there are fewer than two classes to choose among")]
    TooFewClasses,
    #[error("two classes stay: they are what is chosen among")]
    LastClasses,
    #[error("there is no class {0:?}")]
    NoClass(String),
    #[error(transparent)]
    Name(DataError),
    #[error("the embedding is not finite, or its probabilities are not")]
    NotFinite,
    #[error("there is no example {0}")]
    NoExample(usize),
    #[error("there are {MOST_EXAMPLES} examples, and no more are taken")]
    Full,
    #[error(transparent)]
    Model(#[from] AdaptedModelError),
    #[error("the file of the model: {0}")]
    File(#[from] std::io::Error),
}

/// The side of a [`Gallery`] that requests see, whatever its backend.
pub(super) trait Served {
    fn embed(&self, images: &[&[f32]]) -> Vec<Vec<f32>>;

    /// Classifies an embedding, with the `top` likeliest classes; as none, where it is less likely than
    /// `unknown` of a known class at all.
    fn predict(
        &self,
        embedding: &[f32],
        top: usize,
        unknown: Option<f64>,
    ) -> Result<Value, GalleryError>;

    /// Adds an example, maybe the first of its class, unless the class has one of an equal file, or without a picture an equal
    /// one.
    fn add(
        &mut self,
        class: String,
        embedding: Vec<f32>,
        picture: Option<ExamplePicture>,
    ) -> Result<Addition, GalleryError>;

    /// Removes a class, and returns the numbers of its examples.
    fn remove_class(&mut self, class: &str) -> Result<Vec<usize>, GalleryError>;

    /// Removes an example, and its class with the last one.
    fn remove_example(&mut self, number: usize) -> Result<(), GalleryError>;

    fn describe(&self) -> Value;

    fn file(&self) -> Result<Vec<u8>, GalleryError>;
}

/// The picture of an example: a small one for the page, and the digest of its file.
pub(super) struct ExamplePicture {
    pub(super) thumbnail: Thumbnail,
    pub(super) digest: String,
}

/// The number of an example that was added, or of an equal one that was there.
pub(super) enum Addition {
    New(usize),
    There(usize),
}

/// Classes with their examples, and the model that was learned from them, where there are two.
pub(super) struct Gallery<B: Backend> {
    source: EmbeddingSource<B>,
    method: String,
    classes: BTreeMap<String, Vec<Example>>,
    model: Option<AdaptedModel<B>>,
    file: PathBuf,
    numbers: Numbers,
    /// `true` where small pictures of examples are to be in the file.
    keeps_thumbnails: bool,
}

/// Numbers of examples. The models of a folder share them, so that the numbers of a model that was closed and opened
/// again are new: an old one is of no other example.
#[derive(Clone, Default)]
pub(super) struct Numbers(Arc<AtomicUsize>);

impl Numbers {
    /// The first of `count` numbers that nobody else gets.
    fn take(&self, count: usize) -> usize {
        self.0.fetch_add(count, Ordering::Relaxed)
    }
}

#[derive(Clone)]
struct Example {
    number: usize,
    embedding: Vec<f32>,
    /// For the file.
    thumbnail: Option<Thumbnail>,
    /// Digest of the picture's file, where it is known.
    digest: Option<String>,
}

impl<B: Backend> Gallery<B> {
    /// A model without a class.
    pub(super) fn new(
        backbone: PretrainedBackbone<B>,
        method: &str,
        file: PathBuf,
        keeps_thumbnails: bool,
    ) -> Self {
        Self {
            source: backbone.into(),
            method: method.to_owned(),
            classes: BTreeMap::new(),
            model: None,
            file,
            numbers: Numbers::default(),
            keeps_thumbnails,
        }
    }

    /// The model of a file, with the file `weights` if its own are elsewhere.
    pub(super) fn open(
        file: &Path,
        weights: Option<&Path>,
        numbers: Numbers,
        device: &B::Device,
    ) -> Result<Self> {
        Ok(match AdaptedModel::open_with_weights(file, weights, device) {
            Err(AdaptedModelError::TooFewClasses { .. }) => {
                Self::unfitted(UnfittedModel::open(file, weights, device)?, file, numbers)
            }
            model => {
                let model = model?;
                let gallery = Self::unfitted(model.unfitted().clone(), file, numbers);
                Self { model: Some(model), ..gallery }
            }
        })
    }

    /// Small pictures stay in the file if it has some.
    fn unfitted(model: UnfittedModel<B>, file: &Path, numbers: Numbers) -> Self {
        let UnfittedModel { source, method, examples, thumbnails, digests } = model;
        let first = numbers.take(examples.rows());
        let class = |class| {
            let rows = examples.rows_of(class);
            let example = |row: usize| Example {
                number: first + row,
                embedding: examples.row(row).to_vec(),
                thumbnail: thumbnails[row].clone(),
                digest: digests[row].clone(),
            };
            (examples.class_name(class).to_owned(), rows.map(example).collect())
        };
        let classes = (0..examples.classes()).map(class).collect();
        let keeps_thumbnails = thumbnails.iter().any(Option::is_some);
        let file = file.to_owned();
        Self { source, method, classes, model: None, file, numbers, keeps_thumbnails }
    }

    /// Memory of the network's parameters, and of embeddings and small pictures of the examples.
    pub(super) fn bytes(&self) -> Bytes {
        let example = |example: &Example| {
            let thumbnail = example.thumbnail.as_ref().map_or(0, |bytes| bytes.len());
            size_of_val(example.embedding.as_slice()) + thumbnail
        };
        let examples: usize = self.classes.values().flatten().map(example).sum();
        let network = self.source.network().map_or(Bytes(0), PretrainedBackbone::bytes);
        Bytes(network.0 + examples as u64)
    }

    /// Small pictures of examples, by number.
    pub(super) fn thumbnails(&self) -> HashMap<usize, Thumbnail> {
        let all = self.classes.values().flatten();
        all.filter_map(|example| Some((example.number, example.thumbnail.clone()?))).collect()
    }

    /// Preparation of pictures; none where the model takes none.
    pub(super) fn preparation(&self) -> Option<Preparation> {
        self.source.network().map(|network| network.origin().preparation())
    }

    /// Refuses embeddings of another length than the others have.
    fn check_length(&self, embedding: &[f32]) -> Result<(), GalleryError> {
        let actual = embedding.len();
        match self.length() {
            Some(expected) if expected != actual => {
                Err(AdaptedModelError::OtherLength { expected, actual }.into())
            }
            _ => Ok(()),
        }
    }

    /// Takes these classes in place of those there are, and writes the model, of no class none; or changes nothing.
    fn change(&mut self, classes: BTreeMap<String, Vec<Example>>) -> Result<(), GalleryError> {
        if classes.len() < 2 && self.model.is_some() {
            return Err(GalleryError::LastClasses);
        }
        if classes.is_empty() {
            match fs::remove_file(&self.file) {
                // Somebody else may have deleted it.
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => self.classes = classes,
            }
            return Ok(());
        }
        let rows = |(name, of): (&String, &Vec<Example>)| {
            let rows = of.iter().flat_map(|example| example.embedding.iter().copied());
            (name.clone(), rows.collect::<Vec<_>>())
        };
        let length = classes.values().flatten().map(|example| example.embedding.len());
        let examples = Features::new(length.max().unwrap_or(0), classes.iter().map(rows))
            .map_err(AdaptedModelError::from)?;
        let thumbnails = classes.values().flatten().map(|example| example.thumbnail.clone());
        let (source, thumbnails) = (self.source.clone(), thumbnails.collect());
        let digests = classes.values().flatten().map(|example| example.digest.clone()).collect();
        if classes.len() < 2 {
            let method = self.method.clone();
            let model = UnfittedModel { source, method, examples, thumbnails, digests };
            model.write(&self.file)?;
        } else {
            let model = AdaptedModel::adapt(source, &self.method, examples)?;
            let model = model.with_thumbnails(thumbnails).with_digests(digests);
            model.write(&self.file)?;
            self.model = Some(model);
        }
        self.classes = classes;
        Ok(())
    }

    /// Values of an embedding, where an example or the network says it.
    fn length(&self) -> Option<usize> {
        let example = self.classes.values().flatten().next();
        let of_network = || Some(self.source.network()?.features());
        example.map(|example| example.embedding.len()).or_else(of_network)
    }

    fn example(&self, row: usize) -> (&str, usize) {
        let mut all =
            self.classes.iter().flat_map(|(name, of)| of.iter().map(move |of| (name, of)));
        let (name, example) = all.nth(row).expect("a row of the model");
        (name, example.number)
    }
}

impl<B: Backend> Served for Gallery<B> {
    fn embed(&self, images: &[&[f32]]) -> Vec<Vec<f32>> {
        let Some(network) = self.source.network() else { return Vec::new() };
        let (rows, length) = network.embed_prepared(images.concat());
        rows.chunks_exact(length.max(1)).map(<[f32]>::to_vec).collect()
    }

    fn predict(
        &self,
        embedding: &[f32],
        top: usize,
        unknown: Option<f64>,
    ) -> Result<Value, GalleryError> {
        let model = self.model.as_ref().ok_or(GalleryError::TooFewClasses)?;
        self.check_length(embedding)?;
        let predictions = model.classify(embedding).map_err(|_| GalleryError::NotFinite)?;
        let nearest = model.nearest(embedding, NEAREST).into_iter().map(|(row, cosine)| {
            let (class, example) = self.example(row);
            json!({"class": class, "example": example, "cosine": rounded(cosine, 4)})
        });
        let mut answer = describe(&predictions[0], top, unknown);
        answer["nearest"] = nearest.collect();
        Ok(answer)
    }

    fn add(
        &mut self,
        class: String,
        embedding: Vec<f32>,
        picture: Option<ExamplePicture>,
    ) -> Result<Addition, GalleryError> {
        self.check_length(&embedding)?;
        let (thumbnail, digest) =
            picture.map(|ExamplePicture { thumbnail, digest }| (thumbnail, digest)).unzip();
        let is_equal = |example: &&Example| match digest {
            Some(_) => example.digest == digest,
            None => example.embedding == embedding,
        };
        if let Some(there) = self.classes.get(&class).into_iter().flatten().find(is_equal) {
            return Ok(Addition::There(there.number));
        }
        if self.classes.values().map(Vec::len).sum::<usize>() >= MOST_EXAMPLES {
            return Err(GalleryError::Full);
        }
        let (number, mut classes) = (self.numbers.take(1), self.classes.clone());
        let thumbnail = thumbnail.filter(|_| self.keeps_thumbnails);
        classes.entry(class).or_default().push(Example { number, embedding, thumbnail, digest });
        self.change(classes)?;
        Ok(Addition::New(number))
    }

    fn remove_class(&mut self, class: &str) -> Result<Vec<usize>, GalleryError> {
        let mut classes = self.classes.clone();
        let removed =
            classes.remove(class).ok_or_else(|| GalleryError::NoClass(class.to_owned()))?;
        self.change(classes)?;
        Ok(removed.iter().map(|example| example.number).collect())
    }

    fn remove_example(&mut self, number: usize) -> Result<(), GalleryError> {
        let mut classes = self.classes.clone();
        let removed = classes.values_mut().find_map(|examples| {
            let place = examples.iter().position(|example| example.number == number)?;
            Some(examples.remove(place))
        });
        removed.ok_or(GalleryError::NoExample(number))?;
        classes.retain(|_, of| !of.is_empty());
        self.change(classes)
    }

    fn describe(&self) -> Value {
        let classes = self.classes.iter().map(|(name, of)| {
            let examples: Vec<_> = of.iter().map(|example| example.number).collect();
            json!({"class": name, "examples": examples})
        });
        let validation = self.model.as_ref().and_then(AdaptedModel::cross_validation);
        json!({
            "file": self.file.file_name().map(|name| name.to_string_lossy()),
            "backbone": self.source.network().map(|network| network.origin().to_string()),
            "length": self.length(),
            "method": self.method,
            "left_out": validation.map(|validation| validation.examples()),
            "left_out_folds": validation.and_then(|validation| validation.folds),
            "left_out_accuracy": validation.map(|validation| rounded(validation.accuracy(), 2)),
            "classes": classes.collect::<Vec<_>>(),
        })
    }

    fn file(&self) -> Result<Vec<u8>, GalleryError> {
        if self.classes.is_empty() {
            return Err(GalleryError::TooFewClasses);
        }
        Ok(fs::read(&self.file)?)
    }
}
