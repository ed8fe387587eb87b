//! Float tensors of a module by name.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, FloatDType, Tensor, TensorData};

pub type Values = BTreeMap<String, Vec<f64>>;

/// `module` with these values, as elements of `dtype`.
pub fn with_values<B: Backend, M: Module<B>>(module: M, values: &Values, dtype: DType) -> M {
    let mut load = Load { values, dtype, path: Vec::new(), loaded: 0 };
    let module = module.map(&mut load);
    assert_eq!(load.loaded, values.len(), "every value has its place");
    module
}

struct Load<'a> {
    values: &'a Values,
    dtype: DType,
    path: Vec<String>,
    loaded: usize,
}

impl<B: Backend> ModuleMapper<B> for Load<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, old, mapper) = param.consume();
        let Some(values) = self.values.get(&self.path.join(".")) else {
            let value = old.detach().cast(FloatDType::from(self.dtype));
            return Param::from_mapped_value(id, value, mapper);
        };
        self.loaded += 1;
        let data = TensorData::new(values.clone(), old.dims());
        let value = Tensor::from_data(data, (&old.device(), self.dtype));
        Param::from_mapped_value(id, value.require_grad(), mapper)
    }
}

/// The gradients that were found, by name.
pub fn gradients<B: AutodiffBackend, M: Module<B>>(module: &M, found: &GradientsParams) -> Values {
    let mut read = Read { found, path: Vec::new(), values: Values::new() };
    module.visit(&mut read);
    read.values
}

struct Read<'a> {
    found: &'a GradientsParams,
    path: Vec<String>,
    values: Values,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Read<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.found.get::<B::InnerBackend, D>(param.id) {
            let values = gradient.into_data().iter::<f64>().collect();
            self.values.insert(self.path.join("."), values);
        }
    }
}

/// The parameters of `module` by name: those that training moves, and on a plain backend all.
pub fn parameters<B: Backend, M: Module<B>>(module: &M) -> Values {
    let mut list = List { path: Vec::new(), values: Values::new() };
    module.visit(&mut list);
    list.values
}

struct List {
    path: Vec<String>,
    values: Values,
}

impl<B: Backend> ModuleVisitor<B> for List {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if param.is_require_grad() || !B::ad_enabled(&param.val().device()) {
            let values = param.val().into_data().iter::<f64>().collect();
            self.values.insert(self.path.join("."), values);
        }
    }
}

/// Every gradient that `outcome` finds beside its loss is the slope of the loss, at the first value
/// of every tensor and at the one of the largest gradient; in double precision.
pub fn assert_slopes(values: &Values, outcome: impl Fn(&Values) -> (f64, Values)) -> Values {
    let (_, found) = outcome(values);
    for (name, gradients) in &found {
        let by_size =
            |one: &usize, two: &usize| gradients[*one].abs().total_cmp(&gradients[*two].abs());
        let largest = (0..gradients.len()).max_by(by_size).expect("a tensor has values");
        for index in [0, largest] {
            let loss = |change: f64| {
                let mut values = values.clone();
                values.get_mut(name).unwrap()[index] += change;
                outcome(&values).0
            };
            let (slope, found) = ((loss(1e-5) - loss(-1e-5)) / 2e-5, gradients[index]);
            assert!((slope - found).abs() < 1e-6, "{name}[{index}] is {found}, not {slope}");
        }
    }
    found
}

/// Equal up to `tolerance` times the largest of all values.
pub fn assert_close(what: &str, found: &Values, expected: &Values, tolerance: f64) {
    let names = |values: &Values| values.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "{what}");
    let largest = expected.values().flatten().fold(0.0f64, |most, value| most.max(value.abs()));
    for (name, expected) in expected {
        assert_eq!(found[name].len(), expected.len(), "{what}: length of {name}");
        for (index, (found, expected)) in found[name].iter().zip(expected).enumerate() {
            let error = (found - expected).abs();
            assert!(
                error <= tolerance * largest,
                "{what}: {name}[{index}] is {found}, not {expected}; the largest is {largest}"
            );
        }
    }
}
