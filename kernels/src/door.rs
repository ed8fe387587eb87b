//! The one door to fused operations: a registry of vtables, typed on the backend.
//!
//! Looking a backend up costs about 20 ns. The registry fills itself on first use with the stacks of
//! the enabled features; [`register`] is open to other backends.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, RwLock};

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use crate::conv_stack::StackCall;
use crate::host::HostBackend;
use crate::layers::{FusedLayers, LayerTable};
use crate::{cpu, environment};

/// A backend with fused bodies for the operations of this crate.
pub trait FusedOps: Backend {
    /// The stack of convolution blocks: `images` `[n, c, h, w]` and all parameters as one vector,
    /// to the features `[n, c', h', w']` and the batch moments as one untracked vector.
    fn conv_stack(
        images: FloatTensor<Self>,
        parameters: FloatTensor<Self>,
        call: &StackCall,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

type ConvStackFn<B> =
    fn(FloatTensor<B>, FloatTensor<B>, &StackCall) -> (FloatTensor<B>, FloatTensor<B>);

pub(crate) struct VTable<B: Backend> {
    pub(crate) conv_stack: ConvStackFn<B>,
}

/// Which way the operations of a backend go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Fused bodies over slices of host memory, with the instruction set they run on.
    Host(&'static str),
    /// Plain Burn operations: the backend is not registered.
    Reference,
    /// Plain Burn operations, because `FEWSHOT_KERNELS=reference` asks for them.
    Forced,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(body) => write!(f, "fused ({body})"),
            Self::Reference => f.write_str("reference"),
            Self::Forced => f.write_str("reference (FEWSHOT_KERNELS)"),
        }
    }
}

/// Tables by their own type, which names the backend.
type Registry = HashMap<TypeId, &'static (dyn Any + Send + Sync)>;

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(|| RwLock::new(built_in()));

/// Opens the fused path to `B`. Registering twice changes nothing.
pub fn register<B: FusedOps>() {
    insert::<B>(&mut REGISTRY.write().unwrap_or_else(|poisoned| poisoned.into_inner()));
}

/// Opens the fused path of single layers to `B`. Registering twice changes nothing.
pub fn register_layers<B: FusedLayers>() {
    insert_layers::<B>(&mut REGISTRY.write().unwrap_or_else(|poisoned| poisoned.into_inner()));
}

/// The path that the operations of `B` take in this process.
///
/// Set the environment variable `FEWSHOT_KERNELS=reference` before the first operation to force
/// plain Burn operations, for instance to see whether a wrong result comes from a fused body; with
/// the name of a set of instructions (`avx512`, `avx2`, `portable`), fused bodies run on that one.
///
/// # Panics
/// If `FEWSHOT_KERNELS` has another value, or names instructions that this processor lacks.
pub fn route<B: Backend>() -> Route {
    route_of::<VTable<B>>()
}

/// The path that single layers take on `B`: it is fused under any number of levels of autodiff that
/// are registered, two of them from the start.
///
/// # Panics
/// As [`route`].
pub fn route_of_layers<B: Backend>() -> Route {
    route_of::<LayerTable<B>>()
}

fn route_of<T: Any>() -> Route {
    if environment::wants_reference() {
        return Route::Forced;
    }
    match find::<T>() {
        Some(_) => Route::Host(cpu::instructions()),
        None => Route::Reference,
    }
}

pub(crate) fn lookup<B: Backend>() -> Option<&'static VTable<B>> {
    find()
}

/// The table of this type, unless the reference is asked for.
pub(crate) fn find<T: Any>() -> Option<&'static T> {
    if environment::wants_reference() {
        return None;
    }
    let registry = REGISTRY.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    registry.get(&TypeId::of::<T>())?.downcast_ref()
}

fn insert<B: FusedOps>(registry: &mut Registry) {
    insert_table(registry, || VTable::<B> { conv_stack: B::conv_stack });
}

fn insert_layers<B: FusedLayers>(registry: &mut Registry) {
    insert_table(registry, LayerTable::<B>::new);
}

fn insert_table<T: Any + Send + Sync>(registry: &mut Registry, table: impl FnOnce() -> T) {
    registry.entry(TypeId::of::<T>()).or_insert_with(|| Box::leak(Box::new(table())));
}

/// A leaf backend bare and under autodiff with either checkpointing strategy, and its layers also
/// under two levels.
fn insert_stacks<B: HostBackend + FusedOps>(registry: &mut Registry) {
    insert::<B>(registry);
    insert::<Autodiff<B>>(registry);
    insert::<Autodiff<B, BalancedCheckpointing>>(registry);
    insert_layers::<B>(registry);
    insert_layers::<Autodiff<B>>(registry);
    insert_layers::<Autodiff<B, BalancedCheckpointing>>(registry);
    insert_layers::<Autodiff<Autodiff<B>>>(registry);
}

fn built_in() -> Registry {
    #[allow(unused_mut)]
    let mut registry = Registry::new();
    #[cfg(feature = "flex")]
    insert_stacks::<burn::backend::Flex>(&mut registry);
    #[cfg(feature = "ndarray")]
    insert_stacks::<burn::backend::NdArray<f32, i64>>(&mut registry);
    #[cfg(feature = "ndarray")]
    insert_stacks::<burn::backend::NdArray<f32, i32>>(&mut registry);
    #[cfg(feature = "candle")]
    #[allow(deprecated)]
    insert_stacks::<burn::backend::Candle<f32, i64>>(&mut registry);
    registry
}
