//! Context parameters: what they modulate, in value, gradient and second derivative, and in lanes.

mod at_zero;
mod beside_plain_operations;
mod in_lanes;
mod names;
mod second_derivatives;

use burn::nn::conv::Conv2d;
use burn::tensor::Shape;
use burn::tensor::activation::relu;
use burn::tensor::module::{conv2d, max_pool2d};
use burn::tensor::ops::ConvOptions;

use super::second_derivatives::{differences_by, tensor};
use super::weights_from_elsewhere::carried;
use super::*;

type State = BTreeMap<String, Vec<f32>>;

fn conv4_config() -> Conv4Config {
    Conv4Config::new([2, 8, 9]).with_channels(3).with_blocks(2)
}

fn conv4<B: Backend>(config: &Conv4Config) -> Conv4<B> {
    B::seed(&Default::default(), 21);
    config.init(&Default::default())
}

fn mlp<B: Backend>(context: usize) -> Mlp<B> {
    B::seed(&Default::default(), 22);
    let config = MlpConfig::new(4).with_layers(vec![5, 3]).with_context(context);
    config.init(&Default::default())
}

/// Walks along a module's tensors with their names.
struct Walk<F> {
    path: Vec<String>,
    each: F,
}

impl<F> Walk<F> {
    fn new(each: F) -> Self {
        Self { path: Vec::new(), each }
    }
}

impl<B: Backend, F: FnMut(String, Shape) -> Vec<f32>> ModuleMapper<B> for Walk<F> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let mut dims = param.dims();
        let values = (self.each)(self.path.join("."), param.shape());
        dims[0] = values.len() / dims[1..].iter().product::<usize>();
        Param::initialized(param.id, tensor(values, dims).require_grad())
    }
}

/// `module` with these values; several times as many of each are those of lanes.
fn with_state<B: Backend, M: Module<B>>(module: M, state: &State) -> M {
    module.map(&mut Walk::new(|name, _| state[&name].clone()))
}

/// Values of their own for all tensors of `module`, far from where they begin. Shifts are positive,
/// so that something is left of every block by its ReLU.
fn any_state<B: Backend>(module: impl Module<B>, seed: u64) -> State {
    let mut state = State::new();
    module.map(&mut Walk::new(|name: String, shape: Shape| {
        let values = uniform::<Flex, 1>(seed + state.len() as u64, [shape.num_elements()]);
        let positive = ["running", "norm.beta", "map.bias"].iter().any(|part| name.contains(part));
        let values = if positive { values.abs() + 0.5 } else { values };
        state.insert(name, read(values.clone()));
        read(values)
    }));
    state
}

/// Collects the gradients by name.
struct Collect<'a, B: AutodiffBackend> {
    path: Vec<String>,
    gradients: &'a B::Gradients,
    found: BTreeMap<String, Tensor<B::InnerBackend, 1>>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Collect<'_, B> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = param.val().grad(self.gradients) {
            let length = gradient.shape().num_elements();
            self.found.insert(self.path.join("."), gradient.reshape([length]));
        }
    }
}

/// The gradients by the names of parameters.
pub fn gradients<B: AutodiffBackend>(
    module: &impl Module<B>,
    gradients: &B::Gradients,
) -> BTreeMap<String, Tensor<B::InnerBackend, 1>> {
    let mut collect = Collect { path: Vec::new(), gradients, found: BTreeMap::new() };
    module.visit(&mut collect);
    collect.found
}

fn assert_not_flat(what: &str, gradient: &[f32]) {
    assert!(gradient.iter().any(|value| value.abs() > 1e-2), "{what}: {gradient:?}");
}

/// A loss that is curved in every feature.
fn loss<B: Backend, const D: usize>(features: Tensor<B, D>) -> Tensor<B, 1> {
    (features.clone() * features.clone() * features).sum() / 3.0
}
