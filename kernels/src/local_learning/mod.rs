//! Layers that learn by local rules, over many ticks at once.
//!
//! Tick after tick is a dozen small operations a layer, which an accelerator spends on launches. Here
//! one launch goes through a whole sequence. It works below autodiff, on accelerators only. The
//! plastic hierarchies of the crate `fewshot` define what it computes, and compute it elsewhere.

#[cfg(feature = "cube")]
// A condition of the compiler's and one of the device's are two.
#[allow(clippy::too_many_arguments, clippy::collapsible_if, clippy::manual_is_multiple_of)]
mod cube;
#[cfg(feature = "fusion")]
mod fusion;
mod memory;
mod settings;

pub use memory::{LayerMemory, LocalMemory};
pub use settings::{
    Activation, Aggregate, BcmForm, LocalLayer, LocalLearning, LocalRule, RuleKind,
};

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor};

use crate::fallback::{all_f32, log_once};
use crate::host::{unwrap, wrap};
use crate::registry::{self, Operation};

/// Weights times sequences of a tick at most, which one multiprocessor takes a millisecond for, as plain
/// operations take for their launches: these have all multiprocessors.
const MOST_WORK: usize = 1 << 24;

/// The tensors of layers that learn in some ticks: the operands, and, with other values, the results.
pub struct LocalTensors<T> {
    /// The inputs of all ticks, `[b, T, inputs]`; of the results each layer's outputs,
    /// `[b, firings, neurons]`, where they are wanted and there are any.
    pub values: Vec<T>,
    /// The weight of each layer, `[neurons, inputs]`.
    pub weights: Vec<T>,
    /// See [`LocalMemory`].
    pub memory: T,
}

/// All ticks of the inputs, from a tick on; on an accelerator: on a host an operation costs next to nothing,
/// so that tick after tick is as good. All tensors are f32 and fit the settings, and there is at least one tick
/// of one sequence. Memory is overwritten only where nothing else holds it.
impl Operation for LocalLearning {
    type Operands<B: Backend> = (usize, LocalTensors<FloatTensor<B>>);
    type Results<B: Backend> = LocalTensors<FloatTensor<B>>;
}

/// The largest number of layers that can learn on a device.
pub(crate) struct MostLayers;

impl Operation for MostLayers {
    type Operands<B: Backend> = B::Device;
    type Results<B: Backend> = usize;
}

/// The settings, where layers with tensors of these types can learn by [`local_learning`] on a device.
/// Where the backend has a body for that and they cannot, or there are none, it is logged once why.
pub fn local_settings<B: Backend>(
    device: &B::Device,
    types: impl IntoIterator<Item = DType>,
    settings: impl FnOnce() -> Option<LocalLearning>,
) -> Option<LocalLearning> {
    let name = "local_learning";
    let refused = |text: String| {
        log_once(name, text);
        None
    };
    let most_layers = registry::body::<B, MostLayers>()?;
    let Some(settings) = settings() else {
        return refused("a rule that is not built in, or a rate that is learned".into());
    };
    let (most, layers) = (most_layers(device.clone(), &MostLayers), settings.layers.len());
    if layers > most {
        return refused(format!("{layers} layers, {most} at most"));
    }
    let work = settings.work();
    if work > MOST_WORK {
        return refused(format!("{work} weights times sequences a tick, {MOST_WORK} at most"));
    }
    all_f32(name, types).then_some(settings)
}

/// Layers that learned locally, with their outputs.
#[derive(Clone, Debug)]
pub struct Learned<B: Backend> {
    /// The weight of each layer, `[neurons, inputs]`.
    pub weights: Vec<Tensor<B, 2>>,
    /// For the next ticks.
    pub memory: LocalMemory<B>,
    /// The outputs of each layer that fired, `[b, firings, neurons]`; none unless the settings ask for them.
    pub outputs: Vec<Tensor<B, 3>>,
}

/// All ticks of `xs`, `[b, T, inputs]`, from tick `start` on.
///
/// # Panics
/// Where [`local_settings`] did not give the settings.
pub fn local_learning<B: Backend>(
    learning: &LocalLearning,
    start: usize,
    xs: Tensor<B, 3>,
    weights: Vec<Tensor<B, 2>>,
    memory: LocalMemory<B>,
) -> Learned<B> {
    let body = registry::body::<B, LocalLearning>().expect("a backend that learns locally");
    let LocalMemory { numbers, offsets } = memory;
    let tensors = LocalTensors {
        values: vec![unwrap(xs)],
        weights: weights.into_iter().map(unwrap).collect(),
        memory: unwrap(numbers),
    };
    let LocalTensors { values, weights, memory } = body((start, tensors), learning);
    Learned {
        weights: weights.into_iter().map(wrap).collect(),
        memory: LocalMemory { numbers: wrap(memory), offsets },
        outputs: values.into_iter().map(wrap).collect(),
    }
}
