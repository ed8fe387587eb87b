//! The part of the page that is Rust: a network, a model that is learned on it, and what is done with the two.

mod model;

use std::panic;
use std::path::Path;

use burn::backend::Flex;
use fewshot::adapted::{
    AdaptedModel, AdaptedModelError, BackboneOrigin, Example, PUBLISHED_WEIGHTS,
    PretrainedBackbone, UnfittedModel, digest,
};
use fewshot::data::Picture;
use serde_json::{Value, json};
use wasm_bindgen::prelude::*;

use model::Model;

/// Method of new models: that of `fewshot adapt`.
const METHOD: &str = "simpleshot";

/// Examples that are named with a prediction.
const NEAREST: usize = 3;

type Result<T = (), E = JsError> = std::result::Result<T, E>;

#[wasm_bindgen]
extern "C" {
    /// Throws: what was computed is in no known state.
    #[wasm_bindgen(js_namespace = globalThis)]
    fn fail(message: &str);
}

/// Tells the page what a panic says, where nobody would read it.
#[wasm_bindgen(start)]
pub fn start() {
    panic::set_hook(Box::new(|panic| fail(&panic.to_string())));
}

/// The networks with published weights, as JSON.
///
/// # Errors
/// Where they cannot be written.
#[wasm_bindgen]
pub fn networks() -> Result<String> {
    Ok(serde_json::to_string(&PUBLISHED_WEIGHTS)?)
}

/// The picture in a file.
#[wasm_bindgen]
pub struct Photo {
    picture: Picture,
    digest: String,
}

#[wasm_bindgen]
impl Photo {
    /// Reads the content of a file of this name.
    ///
    /// # Errors
    /// When the content is no picture.
    #[wasm_bindgen(constructor)]
    pub fn new(content: Vec<u8>, file: &str) -> Result<Self> {
        let picture = Picture::decode(&content, Path::new(file))?;
        Ok(Self { picture, digest: digest(&content) })
    }
}

/// A network and a model of it, either of which may be absent.
#[wasm_bindgen]
#[derive(Default)]
pub struct Classifier {
    /// The network that is loaded, with its number.
    network: Option<(u32, PretrainedBackbone<Flex>)>,
    model: Option<Model>,
    /// Number of the model's network.
    model_network: Option<u32>,
    /// Numbers that were given.
    numbers: u32,
}

#[wasm_bindgen]
impl Classifier {
    /// Neither a network nor a model.
    #[wasm_bindgen(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the network of this name with the content of a file of its weights. A model that is there stays as it is.
    ///
    /// # Errors
    /// When the content is no file of weights, or one of another network: the network stays.
    pub fn load(&mut self, network: &str, content: Vec<u8>, file: &str) -> Result {
        let network = PretrainedBackbone::decode(network, content, file, &Default::default())?;
        self.network = Some((self.number(), network));
        Ok(())
    }

    /// Takes the model of a file in place of the one that is there.
    ///
    /// # Errors
    /// When the content is no model, or one of another network than the one that is loaded: the model stays.
    pub fn open(&mut self, content: Vec<u8>, file: &str) -> Result {
        let (network, device) = (self.published_network(), Default::default());
        let model = match AdaptedModel::decode(&content, file, network, &device) {
            Err(AdaptedModelError::TooFewClasses { .. }) => {
                UnfittedModel::decode(&content, file, network, &device)?.into()
            }
            model => model?.into(),
        };
        self.take(model);
        Ok(())
    }

    /// Takes the examples of a [snapshot](Self::snapshot) in place of the model that is there.
    ///
    /// # Errors
    /// The reasons are those of [`open`](Self::open).
    pub fn restore(&mut self, content: Vec<u8>) -> Result {
        let (network, device) = (self.published_network(), Default::default());
        let examples = UnfittedModel::decode(&content, "the copy of the model", network, &device)?;
        self.take(examples.into());
        Ok(())
    }

    fn take(&mut self, model: Model) {
        self.model_network = match model.examples().source.network().map(PretrainedBackbone::origin)
        {
            Some(BackboneOrigin::Trained(_)) => Some(self.number()),
            Some(BackboneOrigin::Published(_)) => self.network.as_ref().map(|(number, _)| *number),
            None => None,
        };
        self.model = Some(model);
    }

    fn published_network(&self) -> Option<&PretrainedBackbone<Flex>> {
        self.network.as_ref().map(|(_, network)| network)
    }

    /// A number that no network has.
    fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    /// Number of the network that embeds pictures: the model's, or without a model the one that is loaded. Each network has a number
    /// of its own.
    pub fn embedding_network(&self) -> Option<u32> {
        match self.model {
            Some(_) => self.model_network,
            None => self.loaded_network(),
        }
    }

    /// Number of the network that is loaded.
    pub fn loaded_network(&self) -> Option<u32> {
        self.network.as_ref().map(|(number, _)| *number)
    }

    /// The image of a picture that the network which embeds pictures takes: `[c, h, w]`.
    ///
    /// # Errors
    /// Without a network.
    pub fn prepare(&self, photo: &Photo) -> Result<Vec<f32>> {
        Ok(self.network()?.origin().preparation().apply(&photo.picture))
    }

    /// The network that embeds pictures.
    fn network(&self) -> Result<&PretrainedBackbone<Flex>> {
        match &self.model {
            Some(model) => {
                Ok(model.examples().source.network().ok_or(AdaptedModelError::NoNetwork)?)
            }
            None => self.published_network().ok_or_else(|| JsError::new(NO_NETWORK)),
        }
    }

    /// A copy of the examples, from which the classes can be learned again: none without a model.
    ///
    /// # Errors
    /// When there is more than a file can hold.
    pub fn snapshot(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.model.as_ref().map(|model| model.examples().encode()).transpose()?)
    }

    /// Begins anew, on the same network.
    pub fn clear(&mut self) {
        self.model = None;
    }

    /// Adds a picture to a class; the first one makes the class, and the first of all the model. Where no embedding is given, the
    /// picture is embedded here.
    ///
    /// # Errors
    /// Without a network, when the embedding is not one of the network's, and where the class has no plain name: the model stays.
    pub fn add(&mut self, class: &str, photo: Photo, embedding: Option<Vec<f32>>) -> Result {
        let network = self.network()?;
        let embedding = embedding.unwrap_or_else(|| embed(network, &photo));
        let Photo { picture, digest } = photo;
        let example = vec![Example { picture, digest, embedding }];
        let changed = match &self.model {
            Some(model) => model.examples().clone().with_examples(class, example)?,
            None => UnfittedModel::from_examples(network.clone(), METHOD, class, example)?,
        };
        self.model_network = self.embedding_network();
        self.model = Some(changed.into());
        Ok(())
    }

    /// Removes a class; the model, with the last one.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn remove_class(&mut self, class: &str) -> Result {
        let examples = self.examples()?;
        let is_last = examples.examples.classes() == 1 && examples.examples.class_name(0) == class;
        let changed =
            if is_last { None } else { Some(examples.clone().without_class(class)?.into()) };
        self.model = changed;
        Ok(())
    }

    /// Removes the example in a row; its class with the last one, and the model with the last class.
    ///
    /// # Errors
    /// When there is no such row.
    pub fn remove_example(&mut self, row: usize) -> Result {
        let examples = self.examples()?;
        let rows = examples.examples.rows();
        if row >= rows {
            return Err(JsError::new(&format!("example {row} is not there: there are {rows}")));
        }
        let changed =
            if rows == 1 { None } else { Some(examples.clone().without_example(row)?.into()) };
        self.model = changed;
        Ok(())
    }

    /// The model and the network that is loaded, as JSON. Learns the classes, if they have changed; where that fails, the reason
    /// is in `fault`.
    pub fn describe(&mut self) -> String {
        let loaded = self.published_network().map(|network| network.origin().to_string());
        let model = self.model.as_mut().map_or(Value::Null, Model::describe);
        json!({"network": loaded, "model": model}).to_string()
    }

    /// The small picture of an example, the content of a JPEG file, if there is one.
    ///
    /// # Errors
    /// Without a model.
    pub fn thumbnail(&self, row: usize) -> Result<Option<Vec<u8>>> {
        let thumbnail = self.examples()?.thumbnails.get(row).cloned().flatten();
        Ok(thumbnail.map(|bytes| bytes.to_vec()))
    }

    /// Classifies a picture: every class with its probability, the likeliest first, and the nearest examples, as JSON. Where no
    /// embedding is given, the picture is embedded here.
    ///
    /// # Errors
    /// With fewer than two classes, without a network, and when the embedding is not one of the network's.
    pub fn predict(&mut self, photo: Photo, embedding: Option<Vec<f32>>) -> Result<String> {
        let model = self.model.as_mut().ok_or_else(|| JsError::new(NO_CLASSES))?.fit()?;
        let network = model.backbone().ok_or(AdaptedModelError::NoNetwork)?;
        let embedding = embedding.unwrap_or_else(|| embed(network, &photo));
        let (expected, actual) = (network.features(), embedding.len());
        if actual != expected {
            return Err(AdaptedModelError::OtherLength { expected, actual }.into());
        }
        let prediction = &model.classify(&embedding)?[0];
        let nearest = model.nearest(&embedding, NEAREST).into_iter().map(|(row, _)| row);
        let nearest: Vec<_> = nearest.collect();
        let classes = prediction.classes.iter();
        let classes: Vec<_> =
            classes.map(|(class, p)| json!({"class": class, "probability": p})).collect();
        let known = prediction.known;
        Ok(json!({"known": known, "classes": classes, "nearest": nearest}).to_string())
    }

    /// The content of the model's file.
    ///
    /// # Errors
    /// Without a model, and when nothing tells the classes apart.
    pub fn save(&mut self) -> Result<Vec<u8>> {
        let model = self.model.as_mut().ok_or_else(|| JsError::new(NO_CLASSES))?;
        Ok(model.encode()?)
    }

    fn examples(&self) -> Result<&UnfittedModel<Flex>> {
        self.model.as_ref().map(Model::examples).ok_or_else(|| JsError::new(NO_CLASSES))
    }
}

const NO_CLASSES: &str = "the model has no classes: add pictures of two classes or more";

const NO_NETWORK: &str = "a network is needed first: choose the file of its weights";

fn embed(network: &PretrainedBackbone<Flex>, photo: &Photo) -> Vec<f32> {
    network.embed(std::slice::from_ref(&photo.picture)).0
}
