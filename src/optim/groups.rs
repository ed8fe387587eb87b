//! Groups of parameters by name: their rates, decay and freezing.

use std::collections::HashMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::nn::RUNNING_AVERAGES;

/// Settings of some parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParameterGroup {
    /// Factor of the learning rate.
    pub rate: f64,
    /// Weight decay.
    pub decay: GroupDecay,
    /// Participation in steps.
    pub update: Update,
}

/// Weight decay of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupDecay {
    /// The optimizer's own.
    Full,
    /// None.
    Exempt,
}

/// Participation of a group in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Steps along gradients.
    Trained,
    /// Neither steps nor decays.
    Frozen,
}

impl Default for ParameterGroup {
    fn default() -> Self {
        Self { rate: 1.0, decay: GroupDecay::Full, update: Update::Trained }
    }
}

/// A request that fits no parameter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum GroupError {
    /// A name that no parameter begins with.
    #[error("no parameter is called {name}: there are {}", known.join(", "))]
    Unknown { name: String, known: Vec<String> },
    /// Nothing left to train.
    #[error("every parameter is frozen: nothing is left to train")]
    AllFrozen,
}

/// Parameters of a module by name, each with its group.
///
/// A name is a path as `encoder.blocks.0.conv.weight`. Variants of enum modules are no part of it.
///
/// # Conventions
/// The encoder is everything below the component `encoder` of a name, or below `network` where no name has the
/// former. Its layers are its children in the order of the module; elements of a list count as layers of their
/// own, as in `timm`.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use fewshot::models::Conv4Config;
/// use fewshot::learners::ProtoNet;
/// use fewshot::optim::ParameterGroups;
///
/// let learner = ProtoNet::<Flex, _>::new(Conv4Config::omniglot().init(&Default::default()));
/// let groups = ParameterGroups::of(&learner).freeze(&["blocks.0"])?.layer_decay(0.5);
/// assert_eq!(groups.group("encoder.blocks.2.conv.weight").rate, 0.5);
/// # Ok::<_, fewshot::optim::GroupError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ParameterGroups {
    names: Vec<NamedParameter>,
    /// The component of names that stands for the encoder.
    encoder: &'static str,
    groups: HashMap<String, ParameterGroup>,
}

#[derive(Clone, Debug)]
struct NamedParameter {
    name: String,
    rank: usize,
}

impl ParameterGroups {
    /// One group of all float parameters of `module`.
    pub fn of<B: Backend, M: Module<B>>(module: &M) -> Self {
        let mut list = ListNames { path: ParameterPath::default(), names: Vec::new() };
        module.visit(&mut list);
        let has_encoder = list.names.iter().any(|one| below("encoder", &one.name).is_some());
        let encoder = if has_encoder { "encoder" } else { "network" };
        Self { names: list.names, encoder, groups: HashMap::new() }
    }

    /// The group of the parameter called `name`.
    pub fn group(&self, name: &str) -> ParameterGroup {
        self.groups.get(name).copied().unwrap_or_default()
    }

    /// True if all parameters are in one group, that of the optimizer's own settings.
    pub fn is_uniform(&self) -> bool {
        self.groups.values().all(|group| *group == ParameterGroup::default())
    }

    /// True if a parameter is frozen.
    pub fn freezes(&self) -> bool {
        self.frozen().next().is_some()
    }

    /// Names of the frozen parameters and running averages, in the order of the module.
    pub fn frozen(&self) -> impl Iterator<Item = &str> {
        self.names().filter(|name| self.group(name).update == Update::Frozen)
    }

    /// Freezes the parameters and running averages under these paths, which begin at the learner or at its
    /// encoder.
    ///
    /// # Errors
    /// For a path that leads nowhere, and if nothing is left to train.
    pub fn freeze<T: AsRef<str>>(mut self, paths: &[T]) -> Result<Self, GroupError> {
        for path in paths.iter().map(AsRef::as_ref) {
            let named = self.select(|this, name| {
                is_below(path, name)
                    || this.in_encoder(name).is_some_and(|rest| is_below(path, rest))
            });
            if named.is_empty() {
                return Err(GroupError::Unknown { name: path.to_owned(), known: self.parts() });
            }
            self.change(named, |group| group.update = Update::Frozen);
        }
        let is_left = |one: &NamedParameter| {
            !is_average(&one.name) && self.group(&one.name).update == Update::Trained
        };
        match self.names.iter().any(is_left) {
            true => Ok(self),
            false => Err(GroupError::AllFrozen),
        }
    }

    /// Exempts vectors and scalars from weight decay: biases, the weights of norms, learned rates and scales.
    ///
    /// # Conventions
    /// The rule of `timm`: parameters of rank 0 or 1.
    pub fn without_decay_of_vectors(mut self) -> Self {
        let vectors = self.names.iter().filter(|one| one.rank <= 1);
        let vectors = vectors.map(|one| one.name.clone()).collect();
        self.change(vectors, |group| group.decay = GroupDecay::Exempt);
        self
    }

    /// Multiplies the rate of the encoder's parameters by `factor`.
    pub fn encoder_rate(mut self, factor: f64) -> Self {
        let named = self.select(|this, name| this.in_encoder(name).is_some());
        self.change(named, |group| group.rate *= factor);
        self
    }

    /// Multiplies the rate of each layer of the encoder by `factor` as often as layers follow it there: the last
    /// layer has the whole rate.
    pub fn layer_decay(mut self, factor: f64) -> Self {
        let layers = self.layers();
        for (index, layer) in layers.iter().rev().enumerate() {
            let named = self
                .select(|this, name| this.in_encoder(name).map(layer_of) == Some(layer.as_str()));
            self.change(named, |group| group.rate *= factor.powi(index as i32));
        }
        self
    }

    /// Names of the encoder's layers, from the one nearest to the input on.
    pub fn layers(&self) -> Vec<String> {
        let mut layers: Vec<String> = Vec::new();
        for layer in self.names.iter().filter_map(|one| self.in_encoder(&one.name)).map(layer_of) {
            if !layers.iter().any(|known| known == layer) {
                layers.push(layer.to_owned());
            }
        }
        layers
    }

    /// Names that a message has: the layers of the encoder, and what stands beside it.
    fn parts(&self) -> Vec<String> {
        let mut parts = self.layers();
        for one in self.names.iter().filter(|one| self.in_encoder(&one.name).is_none()) {
            let part = layer_of(&one.name);
            if !parts.iter().any(|known| known == part) {
                parts.push(part.to_owned());
            }
        }
        parts
    }

    /// Names of all float parameters, in the order of the module.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|one| one.name.as_str())
    }

    /// The rest of `name` within the encoder; `None` of a name beside it.
    pub fn in_encoder<'a>(&self, name: &'a str) -> Option<&'a str> {
        below(self.encoder, name)
    }

    fn select(&self, is_chosen: impl Fn(&Self, &str) -> bool) -> Vec<String> {
        let chosen = self.names.iter().filter(|one| is_chosen(self, &one.name));
        chosen.map(|one| one.name.clone()).collect()
    }

    fn change(&mut self, named: Vec<String>, change: impl Fn(&mut ParameterGroup)) {
        for name in named {
            change(self.groups.entry(name).or_default());
        }
    }
}

/// True of a path that is `name` or one of the modules around it.
fn is_below(path: &str, name: &str) -> bool {
    name.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The rest of `name` behind its component `module`.
fn below<'a>(module: &str, name: &'a str) -> Option<&'a str> {
    let mut rest = name;
    while let Some((component, behind)) = rest.split_once('.') {
        rest = behind;
        if component == module {
            return Some(rest);
        }
    }
    None
}

/// The first component of a path, with the second one if that is a number.
fn layer_of(path: &str) -> &str {
    let mut ends = path.match_indices('.').map(|(place, _)| place);
    let Some(first) = ends.next() else { return path };
    let second = ends.next().unwrap_or(path.len());
    match path[first + 1..second].bytes().all(|byte| byte.is_ascii_digit()) {
        true => &path[..second],
        false => &path[..first],
    }
}

fn is_average(name: &str) -> bool {
    name.rsplit('.').next().is_some_and(|last| RUNNING_AVERAGES.contains(&last))
}

/// The path of the parameter that a visitor or mapper has come to.
#[derive(Clone, Debug, Default)]
pub struct ParameterPath(Vec<Option<String>>);

impl ParameterPath {
    /// Enters a module, as `ModuleVisitor` tells it.
    pub fn enter(&mut self, name: &str, container: &str) {
        let is_variant = container.starts_with("Enum:");
        self.0.push((!is_variant).then(|| name.to_owned()));
    }

    /// Leaves the module.
    pub fn exit(&mut self) {
        self.0.pop();
    }

    /// The path, its components separated by dots.
    pub fn name(&self) -> String {
        self.0.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(".")
    }
}

struct ListNames {
    path: ParameterPath,
    names: Vec<NamedParameter>,
}

impl<B: Backend> ModuleVisitor<B> for ListNames {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, _: &Param<Tensor<B, D>>) {
        self.names.push(NamedParameter { name: self.path.name(), rank: D });
    }
}
