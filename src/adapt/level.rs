//! The only place that names levels of autodiff.

use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use burn::backend::Autodiff;
use burn::module::{HasAutodiffModule, Module, ModuleVisitor};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::nn::drawn;

use super::AdaptError;

/// A module one level of autodiff up.
pub type Lifted<B, M> = <M as HasAutodiffModule<Autodiff<B>>>::TrainModule;

/// `module` one level of autodiff up, its parameters leaves there unless they are frozen.
///
/// # Conventions
/// Lazily drawn parameters are drawn first: Burn would draw others for the copy. A parameter that
/// was adapted is no leaf of its own level, which Burn takes for frozen; its name is still
/// `module`'s, so whoever adapts decides from the module that it began with.
pub fn lift<B, M>(module: &M) -> Lifted<B, M>
where
    B: Backend,
    M: Module<B> + HasAutodiffModule<Autodiff<B>>,
{
    drawn::<B, M>(module.clone()).train::<Autodiff<B>>()
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
    const BURNS_WORDS: &str = "Can't differentiate ";
    let panic = match quietly(work) {
        Ok(done) => return Ok(done),
        Err(panic) => panic,
    };
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let operation = text.and_then(|text| text.strip_prefix(BURNS_WORDS));
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

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// Catches a panic of `work` and says nothing about it; other threads' panics are told as before.
fn quietly<T>(work: impl FnOnce() -> T) -> thread::Result<T> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (told, here): (Arc<Hook>, _) = (Arc::new(panic::take_hook()), thread::current().id());
    let before = told.clone();
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() != here {
            before(info);
        }
    }));
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    panic::set_hook(Box::new(move |info| told(info)));
    done
}
