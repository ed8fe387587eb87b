//! Files of weights.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use burn_store::{ModuleStore, PytorchStore, SafetensorsStore, TensorSnapshot};

use super::arranged::permuted;
use super::{WeightsError, strides};

/// All tensors of a file, by name.
pub(super) fn read(file: &Path) -> Result<BTreeMap<String, TensorSnapshot>, WeightsError> {
    let mut start = [0; 9];
    let opened = File::open(file).and_then(|mut file| file.read_exact(&mut start));
    opened.map_err(unreadable(file))?;
    // A safetensors file begins with the length of its header, which is JSON.
    if start[8] == b'{' {
        let mut store = SafetensorsStore::from_file(file).map_indices_contiguous(false);
        return store.get_all_snapshots().cloned().map_err(unreadable(file));
    }
    let mut store = PytorchStore::from_file(file).map_indices_contiguous(false);
    let all = store.get_all_snapshots().cloned().map_err(unreadable(file))?;
    let layouts = strides::layouts(file).map_err(unreadable(file))?;
    let in_order = |(name, given): (String, TensorSnapshot)| {
        let layout = layouts.get(&name).filter(|layout| layout.shape == *given.shape);
        let layout = layout.ok_or_else(|| format!("{name} has no layout"))?;
        if layout.is_contiguous() {
            return Ok((name, given));
        }
        let places = layout.places().ok_or_else(|| format!("{name} is a part of a tensor"))?;
        Ok((name, permuted(given, places)))
    };
    all.into_iter().map(in_order).collect::<Result<_, _>>().map_err(unreadable::<String>(file))
}

pub(super) fn unreadable<E: ToString>(file: &Path) -> impl Fn(E) -> WeightsError {
    move |error| WeightsError::Unreadable { file: file.to_owned(), reason: error.to_string() }
}
