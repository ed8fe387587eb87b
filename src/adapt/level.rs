//! Levels of autodiff, and what Burn 0.21 gets wrong around them.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::thread;

use burn::backend::Autodiff;
use burn::module::{HasAutodiffModule, Module, ModuleVisitor};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::nn::draw;

use super::AdaptError;

/// A module one level of autodiff up.
pub type Lifted<B, M> = <M as HasAutodiffModule<Autodiff<B>>>::TrainModule;

/// `module` one level of autodiff up; its parameters stay on the graph that they are on.
///
/// # Conventions
/// Lazily drawn parameters are drawn first: Burn would draw others for the copy.
pub fn lift<B, M>(module: &M) -> Lifted<B, M>
where
    B: Backend,
    M: Module<B> + HasAutodiffModule<Autodiff<B>>,
{
    draw::<B, M>(module);
    module.clone().train::<Autodiff<B>>()
}

/// `tensor` one level of autodiff up, a constant there; it stays on the graph it is on.
pub(crate) fn lifted<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<Autodiff<B>, D> {
    Tensor::from_inner(tensor)
}

/// Runs `work`, which differentiates a gradient of `module`.
///
/// # Errors
/// Where the module uses an operation whose gradient Burn cannot differentiate; Burn panics then.
pub(crate) fn differentiating_twice<B: Backend, M: Module<B>, T>(
    module: &M,
    work: impl FnOnce() -> T,
) -> Result<T, AdaptError> {
    let panic = match quietly(work) {
        Ok(done) => return Ok(done),
        Err(panic) => panic,
    };
    let operation = text(&*panic).and_then(|text| text.strip_prefix(NO_DERIVATIVE));
    let Some(operation) = operation.map(|text| text.trim_end_matches('.').replace('_', " ")) else {
        panic::resume_unwind(panic);
    };
    let mut layers = Layers { kind: layer(&operation), path: Vec::new(), found: Vec::new() };
    module.visit(&mut layers);
    Err(AdaptError::NotTwice { layer: layers.kind, operation, places: layers.found })
}

/// The type of Burn's layers that use an operation.
fn layer(operation: &str) -> &'static str {
    let layers = [
        ("linear", "Linear"),
        ("embedding", "Embedding"),
        ("adaptive avg pool2d", "AdaptiveAvgPool2d"),
        ("avg pool 2d", "AvgPool2d"),
        ("max pool2d", "MaxPool2d"),
        ("interpolate", "Interpolate2d"),
        ("deform conv 2d", "DeformConv2d"),
    ];
    let layer = layers.into_iter().find(|(start, _)| operation.starts_with(start));
    layer.map_or("layer", |(_, layer)| layer)
}

/// Where a module has parameters of layers of a type.
struct Layers {
    kind: &'static str,
    path: Vec<String>,
    found: Vec<String>,
}

impl<B: Backend> ModuleVisitor<B> for Layers {
    fn enter_module(&mut self, name: &str, container: &str) {
        let place = self.path.join(".");
        if container.strip_prefix("Struct:") == Some(self.kind) && !self.found.contains(&place) {
            self.found.push(place);
        }
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
}

/// Whether `tensor` is on a graph without being a leaf of it, as an adapted parameter is.
///
/// Burn does not tell, but refuses to make a leaf of such a tensor.
pub(crate) fn is_derived<B: Backend, const D: usize>(tensor: &Tensor<B, D>) -> bool {
    let refused = quietly(|| tensor.clone().require_grad()).err();
    refused.is_some_and(|panic| text(&*panic).is_some_and(|text| text.starts_with(NO_LEAF)))
}

/// What Burn's panics begin with where it has no derivative.
const NO_DERIVATIVE: &str = "Can't differentiate ";

/// What Burn's panic begins with where a tensor cannot become a leaf.
const NO_LEAF: &str = "Can't convert a non leaf tensor";

fn text(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}

thread_local! {
    /// Whether the panics that are caught here are expected.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Catches a panic of `work`, and says nothing about it if it is one of the two above.
fn quietly<T>(work: impl FnOnce() -> T) -> thread::Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let words = info.payload_as_str().unwrap_or_default();
            let known = words.starts_with(NO_DERIVATIVE) || words.starts_with(NO_LEAF);
            if !(known && EXPECTED.get()) {
                before(info);
            }
        }));
    });
    let outer = EXPECTED.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    EXPECTED.set(outer);
    done
}
