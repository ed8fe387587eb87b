//! Published weights of networks that are pretrained.

mod arranged;
mod branch;
mod read;

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn_store::{ApplyError, ModuleSnapshot, PyTorchToBurnAdapter};

use branch::{Branch, fullest, shapes};
use read::{read, unreadable};

/// A file whose weights a network does not take. Names of tensors are spelled as in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum WeightsError {
    /// A file that cannot be read, or is no file of weights.
    #[error("cannot read weights from {}: {reason}", file.display())]
    Unreadable { file: PathBuf, reason: String },
    /// Weights of another network, which lack `missing` of the network's `wanted` tensors. `parameter` is the first of them, and
    /// `nearest` the name most like it, of those in the file that the network has no use for.
    #[error(
        "{} has weights of another network: {parameter} is missing{}; {missing} of the network's {expected} tensors are",
        file.display(),
        nearest.as_ref().map_or(String::new(), |name| format!(" (the nearest name in the file is {name})"))
    )]
    Missing {
        file: PathBuf,
        parameter: String,
        nearest: Option<String>,
        missing: usize,
        expected: usize,
    },
    /// Weights of another network, of which `parameter`, the first such, has another shape.
    #[error(
        "{} has weights of another network: {parameter} has the shape {actual:?}, wanted is {expected:?}", file.display()
    )]
    Shape { file: PathBuf, parameter: String, expected: Vec<usize>, actual: Vec<usize> },
    /// Weights of another network, with `unknown` tensors that this one does not have; `names` are up to five of them.
    #[error(
        "{} has weights of another network: {unknown} of its tensors are not in this one: {}{}",
        file.display(),
        names.join(", "),
        if *unknown > names.len() { ", …" } else { "" }
    )]
    Unknown { file: PathBuf, names: Vec<String>, unknown: usize },
    /// Weights that are there several times, with different values under each of the `prefixes`.
    #[error(
        "{} has the network {} times with different weights, under {}: save one of them as a file of its own",
        file.display(),
        prefixes.len(),
        prefixes.iter().map(|prefix| format!("{prefix:?}")).collect::<Vec<_>>().join(" and ")
    )]
    Ambiguous { file: PathBuf, prefixes: Vec<String> },
}

/// A network that weights are published for.
pub trait Pretrained<B: Backend>: Module<B> + Sized {
    /// Parameters that some publish in parts: what names of the parts have in them, in the order in which the parts are joined along
    /// their first dimension. The whole has the published name of its first part.
    const PARTS: &'static [&'static [&'static str]] = &[];

    /// Published names of matrices of which the network has the transposes.
    const TRANSPOSED: &'static [&'static str] = &[];

    /// Published names of tensors that files have beside the network and that change none of its features, such as a classifier:
    /// whole names, or beginnings that end with a dot.
    const BESIDE: &'static [&'static str] = &[];

    /// Name of the parameter that has this published name: PyTorch's spelling of the network's own.
    fn parameter_name(published: &str) -> String {
        published.to_owned()
    }

    /// Published name of the parameter of this name: the one that an error shows where the file has none like it.
    fn published_name(parameter: &str) -> String {
        parameter.to_owned()
    }

    /// Changes the size of a parameter of which the network takes several, to this shape if it is one of them.
    fn resize(&mut self, parameter: &str, shape: &[usize]) {
        let _ = (parameter, shape);
    }

    /// The network with the weights of a file: safetensors, or a state dictionary that PyTorch has written.
    ///
    /// # Conventions
    /// The network is looked for under every prefix, and is where the most of its names are; tensors under other prefixes are
    /// ignored. Under its own, the file may have [more](Self::BESIDE) than the network, such as a classifier, but nothing
    /// unknown, and nothing may be missing. f16 and bf16 become f32.
    ///
    /// # Errors
    /// A [`WeightsError`] with the file, and the names that do not fit.
    fn load_weights(self, file: &Path) -> Result<Self, WeightsError> {
        let given = read(file)?;
        let own = shapes(&self);
        let prefixes = fullest(&own, given.keys().map(String::as_str), Self::parameter_name);
        let all = prefixes.into_iter().map(|prefix| Branch { file, prefix });
        let (fitting, refused): (Vec<_>, Vec<_>) = all
            .map(|branch| Ok((branch.fit(self.clone(), &given)?, branch.prefix.to_owned())))
            .partition(Result::is_ok);
        let mut fitting = fitting.into_iter().flatten();
        let Some(((mut network, tensors), prefix)) = fitting.next() else {
            return Err(refused.into_iter().find_map(Result::err).expect("a prefix was tried"));
        };
        let mut prefixes = vec![prefix];
        for ((_, other), prefix) in fitting {
            if !branch::same(&tensors, &other).map_err(unreadable(file))? {
                prefixes.push(prefix);
            }
        }
        if prefixes.len() > 1 {
            return Err(WeightsError::Ambiguous { file: file.to_owned(), prefixes });
        }
        // So that what was drawn goes as the tensors of the file come.
        drop(self);
        let done = network.apply(tensors, None, Some(Box::new(PyTorchToBurnAdapter)), false);
        match done.errors.into_iter().next() {
            None => Ok(network),
            Some(ApplyError::LoadError { path, message }) => {
                Err(unreadable(file)(format!("{path}: {message}")))
            }
            Some(error) => Err(unreadable(file)(error)),
        }
    }
}
