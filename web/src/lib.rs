//! The part of the page that is Rust: a network, a model that is learned on it, and what is done with the two.

mod model;

use std::panic;
use std::path::Path;

use burn::backend::Flex;
use fewshot::adapted::{
    AdaptedModel, AdaptedModelError, PUBLISHED_WEIGHTS, PretrainedBackbone, UnfittedModel, digest,
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

/// A network and a model of it, either of which may be absent.
#[wasm_bindgen]
#[derive(Default)]
pub struct Classifier {
    network: Option<PretrainedBackbone<Flex>>,
    model: Option<Model>,
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
        self.network = Some(network);
        Ok(())
    }

    /// Takes the model of a file in place of the one that is there.
    ///
    /// # Errors
    /// When the content is no model, or one of another network than the one that is loaded: the model stays.
    pub fn open(&mut self, content: Vec<u8>, file: &str) -> Result {
        let (network, device) = (self.network.as_ref(), Default::default());
        let model = match AdaptedModel::decode(&content, file, network, &device) {
            Err(AdaptedModelError::TooFewClasses { .. }) => {
                UnfittedModel::decode(&content, file, network, &device)?.into()
            }
            model => model?.into(),
        };
        self.model = Some(model);
        Ok(())
    }

    /// Takes the examples of a [snapshot](Self::snapshot) in place of the model that is there.
    ///
    /// # Errors
    /// The reasons are those of [`open`](Self::open).
    pub fn restore(&mut self, content: Vec<u8>) -> Result {
        let (network, device) = (self.network.as_ref(), Default::default());
        let examples = UnfittedModel::decode(&content, "the copy of the model", network, &device)?;
        self.model = Some(examples.into());
        Ok(())
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

    /// Adds a picture to a class, by the content of its file; the first one makes the class, and the first of all the model.
    ///
    /// # Errors
    /// Without a network, when the content is no picture, and where the class has no plain name: the model stays.
    pub fn add(&mut self, class: &str, content: Vec<u8>, file: &str) -> Result {
        let digest = digest(&content);
        let picture = vec![(decoded(content, file)?, digest)];
        let changed = match &self.model {
            Some(model) => model.examples().clone().with_examples(class, picture)?,
            None => {
                let network = self.network.clone().ok_or_else(|| JsError::new(NO_NETWORK))?;
                UnfittedModel::from_examples(network, METHOD, class, picture)?
            }
        };
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
        let loaded = self.network.as_ref().map(|network| network.origin().to_string());
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

    /// Classifies a picture by the content of its file: every class with its probability, the likeliest first, and the nearest
    /// examples, as JSON.
    ///
    /// # Errors
    /// With fewer than two classes, without a network, and when the content is no picture.
    pub fn predict(&mut self, content: Vec<u8>, file: &str) -> Result<String> {
        let model = self.model.as_mut().ok_or_else(|| JsError::new(NO_CLASSES))?.fit()?;
        let network = model.backbone().ok_or(AdaptedModelError::NoNetwork)?;
        let (embedding, _) = network.embed(&[decoded(content, file)?]);
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

fn decoded(content: Vec<u8>, file: &str) -> Result<Picture> {
    Ok(Picture::decode(&content, Path::new(file))?)
}
