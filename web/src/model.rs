//! A model while its classes change.

use std::io;

use burn::backend::Flex;
use fewshot::adapted::{AdaptedModel, AdaptedModelError, UnfittedModel};
use serde_json::{Value, json};

/// Examples, or what was learned from them.
pub(crate) enum Model {
    /// Examples of which nothing was learned since they changed.
    Changed(UnfittedModel<Flex>),
    Fitted(AdaptedModel<Flex>),
}

impl From<UnfittedModel<Flex>> for Model {
    fn from(examples: UnfittedModel<Flex>) -> Self {
        Self::Changed(examples)
    }
}

impl From<AdaptedModel<Flex>> for Model {
    fn from(model: AdaptedModel<Flex>) -> Self {
        Self::Fitted(model)
    }
}

impl Model {
    pub(crate) fn examples(&self) -> &UnfittedModel<Flex> {
        match self {
            Self::Changed(examples) => examples,
            Self::Fitted(model) => model.unfitted(),
        }
    }

    /// The model of the examples as they are.
    pub(crate) fn fit(&mut self) -> Result<&AdaptedModel<Flex>, AdaptedModelError> {
        if let Self::Changed(examples) = self {
            *self = Self::Fitted(examples.clone().fit()?);
        }
        match self {
            Self::Fitted(model) => Ok(model),
            Self::Changed(_) => unreachable!("it has been fitted"),
        }
    }

    /// The content of its file: that of the examples alone, where nothing can be learned of them.
    pub(crate) fn encode(&mut self) -> io::Result<Vec<u8>> {
        match self.fit() {
            Ok(model) => model.encode(),
            Err(_) => self.examples().encode(),
        }
    }

    pub(crate) fn describe(&mut self) -> Value {
        let (validation, fault) = match self.fit() {
            Ok(model) => (model.cross_validation().cloned(), None),
            // That a class more is needed is no fault.
            Err(AdaptedModelError::TooFewClasses { .. }) => (None, None),
            Err(error) => (None, Some(error.to_string())),
        };
        let UnfittedModel { source, method, examples, thumbnails, .. } = self.examples();
        let classes = (0..examples.classes()).map(|class| {
            let rows: Vec<_> = examples.rows_of(class).collect();
            json!({"class": examples.class_name(class), "examples": rows})
        });
        let pictures = (0..thumbnails.len()).filter(|&row| thumbnails[row].is_some());
        json!({
            "backbone": source.network().map(|network| network.origin().to_string()),
            "method": method,
            "length": examples.length(),
            "left_out": validation.as_ref().map(|validation| validation.examples()),
            "left_out_accuracy": validation.as_ref().map(|validation| validation.accuracy()),
            "classes": classes.collect::<Vec<_>>(),
            "pictures": pictures.collect::<Vec<_>>(),
            "fault": fault,
        })
    }
}
