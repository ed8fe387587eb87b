//! Published weights of networks that are pretrained.

mod arranged;
mod read;
mod strides;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::DType;
use burn::tensor::backend::Backend;
use burn_store::{ApplyError, ModuleSnapshot, PyTorchToBurnAdapter, TensorSnapshot};

use arranged::{in_f32, joined, transposed};
use read::{read, unreadable};

/// A file whose weights a network does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum WeightsError {
    /// A file that cannot be read, or is no file of weights.
    #[error("cannot read weights from {}: {reason}", file.display())]
    Unreadable { file: PathBuf, reason: String },
    /// Weights of another network, which lack `missing` parameters. `parameter` is the first, as
    /// the network names it; of one that is published in [parts](Pretrained::PARTS), the part as
    /// the file would name it.
    #[error(
        "{} has weights of another network: there is no {parameter} in it, and {missing} in all of the network's \
         {wanted} tensors are missing", file.display()
    )]
    Missing { file: PathBuf, parameter: String, missing: usize, wanted: usize },
    /// Weights of another network, of which `parameter`, the first such, has another shape.
    #[error(
        "{} has weights of another network: {parameter} has the shape {found:?}, wanted is {wanted:?}", file.display()
    )]
    Shape { file: PathBuf, parameter: String, wanted: Vec<usize>, found: Vec<usize> },
}

/// A network that weights are published for.
pub trait Pretrained<B: Backend>: Module<B> + Sized {
    /// Parameters that some publish in parts: what names of the parts have in them, in the order in which the parts are joined along
    /// their first dimension. The whole has the published name of its first part.
    const PARTS: &'static [&'static [&'static str]] = &[];

    /// Published names of matrices of which the network has the transposes.
    const TRANSPOSED: &'static [&'static str] = &[];

    /// What the network calls the parameter of this published name.
    fn parameter_name(published: &str) -> String {
        published.to_owned()
    }

    /// The network with the weights of a file: safetensors, or a state dictionary that PyTorch has written.
    ///
    /// # Conventions
    /// Prefixes such as `module.` or `encoder.` are taken off names; f16 and bf16 become f32. The file may have more than
    /// the network takes, such as a classifier, but nothing may be missing.
    ///
    /// # Errors
    /// A [`WeightsError`] with the file, and the first parameter that does not fit.
    fn load_weights(mut self, file: &Path) -> Result<Self, WeightsError> {
        let own = self.collect(None, None, false).into_iter();
        let own: HashMap<_, _> = own.map(|of| (of.full_path(), of.shape.to_vec())).collect();
        let given = joined(file, read(file)?, Self::PARTS, own.len())?;
        let given = given.into_iter().map(|(name, given)| {
            let published = without_prefixes(&name);
            let given = match Self::TRANSPOSED.contains(&published) {
                true => transposed(given),
                false => given,
            };
            let name = Self::parameter_name(published);
            let shape = own.get(&name).map_or(&[][..], Vec::as_slice);
            renamed(given, &name, shape)
        });
        let found = self.apply(given.collect(), None, Some(Box::new(PyTorchToBurnAdapter)), false);
        let file = file.to_path_buf();
        if let Some((parameter, _)) = found.missing.iter().min() {
            let (parameter, missing) = (parameter.clone(), found.missing.len());
            return Err(WeightsError::Missing { file, parameter, missing, wanted: own.len() });
        }
        match found.errors.into_iter().next() {
            None => Ok(self),
            Some(ApplyError::ShapeMismatch { path: parameter, expected, found }) => {
                let [wanted, found] = [expected, found].map(|shape| shape.to_vec());
                Err(WeightsError::Shape { file, parameter, wanted, found })
            }
            Some(error) => Err(unreadable(&file)(error)),
        }
    }
}

/// What wrappers and checkpoints put before the names of a network.
const PREFIXES: [&str; 8] = [
    "state_dict.",
    "params.",
    "model.",
    "module.",
    "encoder.",
    "backbone.",
    "visual.",
    "vision_model.",
];

fn without_prefixes(mut name: &str) -> &str {
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)) {
        name = rest;
    }
    name
}

/// A tensor of the file under the network's name, in f32, with as many leading dimensions of 1 as the network has.
fn renamed(given: TensorSnapshot, name: &str, wanted: &[usize]) -> TensorSnapshot {
    let from_ones =
        |shape: &[usize]| shape.iter().skip_while(|side| **side == 1).copied().collect();
    let (found, bare): (Vec<usize>, Vec<usize>) = (given.shape.to_vec(), from_ones(&given.shape));
    let shape = if bare == from_ones(wanted) { wanted.to_vec() } else { found };
    let (data, to) = (given.clone_data_fn(), shape.clone());
    let path = name.split('.').map(str::to_owned).collect();
    in_f32(path, shape, move || {
        let mut data = data()?.convert_dtype(DType::F32);
        data.shape = to.clone().into();
        Ok(data)
    })
}
