//! Weights of networks in files that PyTorch can read and write.

mod arranged;
mod branch;
mod read;

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use burn::module::Module;
use burn::tensor::DType;
use burn::tensor::backend::Backend;
use burn_store::{ApplyError, BurnToPyTorchAdapter, ModuleSnapshot, PyTorchToBurnAdapter};
use safetensors::tensor::{Dtype, TensorView};

use branch::{Branch, fullest, shapes};
use read::{Snapshots, decode, read, unreadable};

/// A file whose weights a network does not take. Names of tensors are spelled as in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum WeightsError {
    /// A file that cannot be read, or is no file of weights.
    #[error("cannot read weights from {}: {reason}", file.display())]
    Unreadable { file: PathBuf, reason: String },
    /// Weights of another network, which lack `missing` of the network's `expected` tensors. `parameter` is the first of them, and
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
        "{} has weights of another network: {parameter} has the shape {actual:?}, not {expected:?}", file.display()
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

/// A network with weights in files: every default holds where a file has PyTorch's names for the module and nothing more.
///
/// ```
/// use burn::backend::Flex;
/// use burn::module::Module;
/// use burn::tensor::backend::Backend;
/// use fewshot_models::Pretrained;
/// use fewshot_models::nn::{Linear, LinearConfig};
///
/// #[derive(Module, Debug)]
/// struct Own<B: Backend> {
///     layer: Linear<B>,
/// }
///
/// impl<B: Backend> Pretrained<B> for Own<B> {}
///
/// let fresh = || Own::<Flex> { layer: LinearConfig::new(3, 2).init(&Default::default()) };
/// let file = std::env::temp_dir().join(format!("own-{}.safetensors", std::process::id()));
/// fresh().save_weights(&file)?;
/// let own = fresh().load_weights(&file)?;
/// assert_eq!(own.layer.weight.dims(), [3, 2]);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Pretrained<B: Backend>: Module<B> + Sized {
    /// Parameters that some publish in parts: what names of the parts have in them, in the order in which the parts are joined along
    /// their first dimension. The whole has the published name of its first part.
    const PARTS: &'static [&'static [&'static str]] = &[];

    /// Published names of matrices of which the network has the transposes.
    const TRANSPOSED: &'static [&'static str] = &[];

    /// Published names of tensors that files have beside the network and that change none of its features, such as a classifier:
    /// whole names, or beginnings that end with a dot.
    const IGNORED_NAMES: &'static [&'static str] = &[];

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
    /// ignored. Under its own, the file may have [more](Self::IGNORED_NAMES) than the network, such as a classifier, but nothing
    /// unknown, and nothing may be missing. f16 and bf16 become f32.
    ///
    /// # Errors
    /// A [`WeightsError`] with the file, and the names that do not fit.
    fn load_weights(self, file: &Path) -> Result<Self, WeightsError> {
        let given = read(file)?;
        with_tensors(self, &given, file)
    }

    /// The same with the content of a file; `name` is the one in errors.
    ///
    /// # Errors
    /// The reasons are those of [`load_weights`](Self::load_weights).
    fn decode_weights(self, content: Rc<[u8]>, name: &Path) -> Result<Self, WeightsError> {
        let given = decode(content, name)?;
        with_tensors(self, &given, name)
    }

    /// Writes the weights to a safetensors file in f32, under the names and in the shapes that PyTorch has for them.
    ///
    /// # Errors
    /// Where a tensor cannot be read or the file cannot be written.
    fn save_weights(&self, file: &Path) -> io::Result<()> {
        let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
        for tensor in self.collect(None, Some(Box::new(BurnToPyTorchAdapter)), false) {
            let data = tensor.to_data().map_err(|error| io::Error::other(error.to_string()))?;
            let bytes = data.convert_dtype(DType::F32).iter().flat_map(f32::to_le_bytes).collect();
            tensors.push((tensor.full_path(), tensor.shape.to_vec(), bytes));
        }
        let mut views = Vec::new();
        for (name, shape, bytes) in &tensors {
            let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
            views.push((name, view.map_err(io::Error::other)?));
        }
        safetensors::serialize_to_file(views, None, file).map_err(io::Error::other)
    }
}

/// The network with the tensors of a file.
fn with_tensors<B: Backend, M: Pretrained<B>>(
    network: M,
    given: &Snapshots,
    file: &Path,
) -> Result<M, WeightsError> {
    let own = shapes(&network);
    let prefixes = fullest(&own, given.keys().map(String::as_str), M::parameter_name);
    let all = prefixes.into_iter().map(|prefix| Branch { file, prefix });
    let (fitting, refused): (Vec<_>, Vec<_>) = all
        .map(|branch| Ok((branch.fit(network.clone(), given)?, branch.prefix.to_owned())))
        .partition(Result::is_ok);
    let mut fitting = fitting.into_iter().flatten();
    let Some(((mut fitted, tensors), prefix)) = fitting.next() else {
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
    drop(network);
    let done = fitted.apply(tensors, None, Some(Box::new(PyTorchToBurnAdapter)), false);
    match done.errors.into_iter().next() {
        None => Ok(fitted),
        Some(ApplyError::LoadError { path, message }) => {
            Err(unreadable(file)(format!("{path}: {message}")))
        }
        Some(error) => Err(unreadable(file)(error)),
    }
}
