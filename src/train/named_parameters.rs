//! Parameters by name, on their way from one learner to another.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

use crate::optim::{ParameterGroups, ParameterPath};

/// The float parameters and running averages of a learner by their names.
///
/// Another learner of the same network takes the encoder's, whatever stands around it.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use fewshot::prelude::*;
/// use fewshot::train::NamedParameters;
///
/// let device = Default::default();
/// let encoder = || Conv4Config::omniglot().with_channels(4).init::<Flex>(&device);
/// let trained = ProtoNet::<Flex, _>::new(encoder());
/// let network = Classifier::new(encoder(), 4, 5, &device);
/// let learner = Maml::<Flex, _>::new(network, InnerLoop::new(1, 0.1))?;
/// let learner = NamedParameters::of(&trained).load_encoder::<Flex, _>(learner)?;
/// # let _ = learner;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct NamedParameters {
    tensors: BTreeMap<String, TensorData>,
    /// Names within the encoder, by whole names.
    encoder: BTreeMap<String, String>,
}

/// An encoder that does not take the parameters of another.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum OtherEncoder {
    /// A parameter that the other encoder does not have.
    #[error("the other network has no {name}")]
    Absent { name: String },
    /// A parameter of another shape.
    #[error("{name} is {} here and {} there", sizes(here), sizes(there))]
    Shape { name: String, here: Vec<usize>, there: Vec<usize> },
}

fn sizes(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

impl NamedParameters {
    /// Copies of the parameters of `module`.
    pub fn of<B: Backend, M: Module<B>>(module: &M) -> Self {
        let mut read = Read { path: ParameterPath::default(), tensors: BTreeMap::new() };
        module.visit(&mut read);
        Self { tensors: read.tensors, encoder: encoder_names::<B, M>(module) }
    }

    /// `module` with the parameters of this encoder.
    ///
    /// # Errors
    /// If its encoder has a parameter that this one lacks or has in another shape.
    pub fn load_encoder<B: Backend, M: Module<B>>(&self, module: M) -> Result<M, OtherEncoder> {
        let within: BTreeMap<&str, &TensorData> = self
            .encoder
            .iter()
            .map(|(whole, within)| (within.as_str(), &self.tensors[whole]))
            .collect();
        let mut chosen = BTreeMap::new();
        for (whole, name) in encoder_names::<B, M>(&module) {
            let tensor = within.get(&*name).ok_or(OtherEncoder::Absent { name })?;
            chosen.insert(whole, *tensor);
        }
        write::<B, M>(module, &chosen)
    }

    /// `module` with all parameters of its own names and shapes, and the names of those that it keeps.
    pub fn load_fitting<B: Backend, M: Module<B>>(&self, module: M) -> (M, Vec<String>) {
        let mut own = Read { path: ParameterPath::default(), tensors: BTreeMap::new() };
        Module::<B>::visit(&module, &mut own);
        let fits = |name: &String, own: &TensorData| {
            self.tensors.get(name).filter(|other| other.shape == own.shape)
        };
        let mut chosen = BTreeMap::new();
        let mut left = Vec::new();
        for (name, tensor) in &own.tensors {
            let Some(other) = fits(name, tensor) else {
                left.push(name.clone());
                continue;
            };
            chosen.insert(name.clone(), other);
        }
        let module = write::<B, M>(module, &chosen).expect("only those that fit are chosen");
        (module, left)
    }
}

/// Names within the encoder of `module`, by whole names.
fn encoder_names<B: Backend, M: Module<B>>(module: &M) -> BTreeMap<String, String> {
    let groups = ParameterGroups::of::<B, M>(module);
    let names = groups.names().filter_map(|name| {
        groups.in_encoder(name).map(|within| (name.to_owned(), within.to_owned()))
    });
    names.collect()
}

struct Read {
    path: ParameterPath,
    tensors: BTreeMap<String, TensorData>,
}

impl<B: Backend> ModuleVisitor<B> for Read {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.tensors.insert(self.path.name(), param.val().into_data());
    }
}

fn write<B: Backend, M: Module<B>>(
    module: M,
    chosen: &BTreeMap<String, &TensorData>,
) -> Result<M, OtherEncoder> {
    let path = ParameterPath::default();
    let mut write = Write { path, chosen, failed: None };
    let module = module.map(&mut write);
    write.failed.map_or(Ok(module), Err)
}

struct Write<'a> {
    path: ParameterPath,
    chosen: &'a BTreeMap<String, &'a TensorData>,
    failed: Option<OtherEncoder>,
}

impl<B: Backend> ModuleMapper<B> for Write<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let name = self.path.name();
        let Some(&data) = self.chosen.get(&name) else { return param };
        let (here, there) = (param.shape().to_vec(), data.shape.to_vec());
        if here != there {
            self.failed.get_or_insert(OtherEncoder::Shape { name, here, there });
            return param;
        }
        param.map(|own| {
            let (tracked, device, dtype) = (own.is_require_grad(), own.device(), own.dtype());
            let loaded = Tensor::from_data(data.clone(), (&device, dtype));
            if tracked { loaded.require_grad() } else { loaded }
        })
    }
}
