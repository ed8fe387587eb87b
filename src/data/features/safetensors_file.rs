use std::collections::HashMap;
use std::io;
use std::path::Path;

use burn::tensor::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use serde::Deserialize;

use super::numbers::each;
use super::open::Content;
use super::{FeatureRows, Features};
use crate::data::{DataError, Result};

/// Where the metadata has the mean row of the base classes.
const BASE_MEAN: &str = "base_mean";

/// Where the metadata of a single tensor has the labels of its rows.
const LABELS: &str = "labels";

/// Content of a file: a tensor a class, or a single one with a label a row.
pub(super) fn content(bytes: &[u8], path: &Path) -> Result<Content> {
    let mut features = Features::from_safetensors(bytes, path)?;
    if features.classes() > 1 {
        return Ok(Content::Classes(features));
    }
    Ok(match features.metadata.remove(LABELS) {
        None => Content::Classes(features),
        Some(text) => {
            let rows = FeatureRows::from(features).unlabelled();
            Content::Rows(rows.with_labels(labels(&text)?)?)
        }
    })
}

impl Features {
    /// Reads the content of a `.safetensors` file, which errors call `path`.
    pub(crate) fn from_safetensors(bytes: &[u8], path: &Path) -> Result<Self> {
        let damaged = DataError::damaged(path, "safetensors");
        let file = SafeTensors::deserialize(bytes).map_err(&damaged)?;
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(&damaged)?;
        let mut length = None;
        let mut classes = Vec::new();
        let mut tensors = file.tensors();
        tensors.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, tensor) in tensors {
            let (rows, actual) = rows(&name, &tensor)?;
            let expected = *length.get_or_insert(actual);
            if actual != expected {
                let what = format!("class {name}");
                return Err(DataError::FeatureLength { what, expected, actual });
            }
            classes.push((name, rows));
        }
        let mut features = Self::new(length.unwrap_or(0), classes)?;
        for (key, value) in header.metadata().iter().flatten() {
            features = match key.as_str() {
                BASE_MEAN => features.with_base_mean(mean(value)?)?,
                _ => features.with_metadata(key, value),
            };
        }
        Ok(features)
    }

    /// The content of a `.safetensors` file.
    pub(crate) fn to_safetensors(&self) -> io::Result<Vec<u8>> {
        let bytes = |class| self.class_values(class).iter().flat_map(|value| value.to_le_bytes());
        let bytes: Vec<Vec<u8>> = (0..self.classes()).map(|class| bytes(class).collect()).collect();
        let views = bytes.iter().enumerate().map(|(class, bytes)| {
            let shape = vec![self.examples(class), self.length];
            let view = TensorView::new(Dtype::F32, shape, bytes).map_err(io::Error::other)?;
            Ok((self.class_name(class), view))
        });
        let views = views.collect::<io::Result<Vec<_>>>()?;
        let mut metadata: HashMap<_, _> = self.metadata.clone().into_iter().collect();
        if let Some(mean) = &self.base_mean {
            metadata.insert(BASE_MEAN.to_owned(), serde_json::to_string(mean)?);
        }
        serialize(views, Some(metadata)).map_err(io::Error::other)
    }
}

/// The values of a class and the length of its rows.
fn rows(name: &str, tensor: &TensorView) -> Result<(Vec<f32>, usize)> {
    let refused = || DataError::NoFeaturesIn {
        name: format!("class {name}"),
        expected: "F32, F64, F16 or BF16 numbers [n, d]",
        actual: format!("{:?} {:?}", tensor.dtype(), tensor.shape()),
    };
    let &[_, length] = tensor.shape() else { return Err(refused()) };
    let values = match tensor.dtype() {
        Dtype::F32 => each(tensor.data(), f32::from_le_bytes),
        Dtype::F64 => each(tensor.data(), |bytes| f64::from_le_bytes(bytes) as f32),
        Dtype::F16 => each(tensor.data(), |bytes| f16::from_le_bytes(bytes).to_f32()),
        Dtype::BF16 => each(tensor.data(), |bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => return Err(refused()),
    };
    Ok((values, length))
}

/// Labels of rows in JSON.
fn labels(text: &str) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Label {
        Text(String),
        Number(i64),
    }
    let labels: Vec<Label> =
        serde_json::from_str(text).map_err(|error| DataError::NoFeaturesIn {
            name: LABELS.to_owned(),
            expected: "a JSON array of strings or whole numbers",
            actual: error.to_string(),
        })?;
    let label = |label| match label {
        Label::Text(text) => text,
        Label::Number(number) => number.to_string(),
    };
    Ok(labels.into_iter().map(label).collect())
}

fn mean(text: &str) -> Result<Vec<f32>> {
    serde_json::from_str(text).map_err(|error| DataError::NoFeaturesIn {
        name: BASE_MEAN.to_owned(),
        expected: "a JSON array of numbers",
        actual: error.to_string(),
    })
}
