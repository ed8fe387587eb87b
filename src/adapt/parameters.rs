//! A module's float tensors as a list, in the order in which the module is visited.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_models::nn::{RUNNING_AVERAGES, draw};

use super::level::is_derived;
use super::lists::Gradients;

/// One float tensor of a module.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// Names of the modules it is in and its own, with dots between.
    pub(crate) path: String,
    pub(crate) shape: Vec<usize>,
    /// True for a parameter that is not frozen. A plain backend knows of no frozen ones.
    pub(crate) free: bool,
}

/// The float tensors of `module`, running averages included.
pub(crate) fn slots<B: Backend, M: Module<B>>(module: &M) -> Vec<Slot> {
    draw::<B, M>(module);
    let mut list = List { path: Vec::new(), slots: Vec::new() };
    module.visit(&mut list);
    list.slots
}

struct List {
    path: Vec<String>,
    slots: Vec<Slot>,
}

impl<B: Backend> ModuleVisitor<B> for List {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let value = param.val();
        let free = match B::ad_enabled(&value.device()) {
            true => value.is_require_grad() || is_derived(&value),
            false => {
                let name = self.path.last().map(String::as_str);
                !name.is_some_and(|name| RUNNING_AVERAGES.contains(&name))
            }
        };
        self.slots.push(Slot { path: self.path.join("."), shape: value.dims().to_vec(), free });
    }
}

/// The values of `module`'s float tensors, each flattened, on the graph they are on.
pub(crate) fn values<B: Backend, M: Module<B>>(module: &M) -> Vec<Tensor<B, 1>> {
    let mut values = Values(Vec::new());
    module.visit(&mut values);
    values.0
}

struct Values<B: Backend>(Vec<Tensor<B, 1>>);

impl<B: Backend> ModuleVisitor<B> for Values<B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.0.push(flat(param.val()));
    }
}

/// `module` with these values for its float tensors, which become as many times as long along
/// dimension 0 as there are lanes in a value; the values stay on the graph they are on.
pub(crate) fn filled<B: Backend, M: Module<B>>(module: M, values: &[Tensor<B, 1>]) -> M {
    let mut fill = Fill { values: values.iter() };
    let filled = module.map(&mut fill);
    assert_eq!(fill.values.len(), 0, "a module has as many tensors as it had");
    filled
}

struct Fill<'a, B: Backend> {
    values: std::slice::Iter<'a, Tensor<B, 1>>,
}

impl<B: Backend> ModuleMapper<B> for Fill<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, old, mapper) = param.consume();
        let value = self.values.next().expect("as many values as the module has tensors");
        let mut shape = old.dims();
        shape[0] *= value.dims()[0] / old.shape().num_elements();
        Param::from_mapped_value(id, shaped(value.clone(), shape), mapper)
    }
}

/// The elements of a tensor in a row. A vector is one already: every operation costs a graph time.
pub(super) fn flat<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, 1> {
    if D == 1 {
        return Tensor::from_primitive(tensor.into_primitive());
    }
    let length = tensor.shape().num_elements();
    tensor.reshape([length])
}

fn shaped<B: Backend, const D: usize>(flat: Tensor<B, 1>, shape: [usize; D]) -> Tensor<B, D> {
    if D == 1 { Tensor::from_primitive(flat.into_primitive()) } else { flat.reshape(shape) }
}

/// The values of a network for one task as those of `lanes` tasks, task after task.
pub(crate) fn stacked<B: Backend>(values: &[Tensor<B, 1>], lanes: usize) -> Vec<Tensor<B, 1>> {
    values.iter().map(|value| tiled(value.clone(), lanes)).collect()
}

/// `[n]` to `[lanes * n]`.
///
/// Not by `repeat_dim`, which on Candle goes over all that there will be for every copy.
pub(crate) fn tiled<B: Backend>(value: Tensor<B, 1>, lanes: usize) -> Tensor<B, 1> {
    if lanes == 1 {
        return value;
    }
    let length = value.dims()[0];
    value.reshape([1, length]).expand([lanes, length]).reshape([lanes * length])
}

/// Registers `gradients` for the parameters of `module` that training moves.
pub(crate) fn register<B: AutodiffBackend, M: Module<B>>(
    registered: &mut GradientsParams,
    module: &M,
    gradients: Gradients<B::InnerBackend>,
) {
    module.visit(&mut Register { registered, gradients: gradients.into_iter() });
}

struct Register<'a, B: AutodiffBackend> {
    registered: &'a mut GradientsParams,
    gradients: std::vec::IntoIter<Option<Tensor<B::InnerBackend, 1>>>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Register<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let gradient = self.gradients.next().expect("one for each tensor of the module");
        let value = param.val();
        if let Some(gradient) = gradient.filter(|_| value.is_require_grad()) {
            self.registered
                .register::<B::InnerBackend, D>(param.id, shaped(gradient, value.dims()));
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use burn::nn::{Linear, LinearConfig};

    use super::*;

    #[test]
    #[should_panic(expected = "a module has as many tensors as it had")]
    fn a_value_for_no_tensor_of_a_module_is_refused() {
        let layer: Linear<Flex> = LinearConfig::new(2, 1).init(&Default::default());
        let mut all = values(&layer);
        all.push(all[0].clone());
        filled(layer, &all);
    }
}
