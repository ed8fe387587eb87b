//! The registry of fused operations: tables of functions (vtables), keyed by the type of the backend.
//!
//! A backend has a table for each family of operations that it fuses. The registry fills itself on first
//! use with the backends of the enabled features; [`register`] is open to other backends.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, PoisonError, RwLock};

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::{BalancedCheckpointing, CheckpointStrategy};
use burn::tensor::DType;
use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, FloatTensorOps};

use crate::axpy::{self, AxpyTable, FusedAxpy};
use crate::conv_stack::StackCall;
use crate::environment::{self, UnknownKernels};
use crate::fallback::all_f32;
use crate::gather_images::{FusedGather, GatherTable};
use crate::host::{HostBackend, HostTable};
use crate::layers::LayerTable;
use crate::layers::node::record;
use crate::linear_stack::LinearCall;
use crate::local_learning::{FusedLocalLearning, LocalTable};
use crate::metrics::{FusedMetrics, MetricTable};
use crate::optim_step::{FusedSteps, StepTable};
use crate::task_loss::TaskLossCall;
use crate::twice_differentiable::{
    CallTable, Results, Runs, TwiceDifferentiable, TwiceDifferentiableBackend,
};
#[cfg(feature = "cube")]
use crate::{
    limits::{LimitTable, MeasuredLimits},
    twice_differentiable::InnermostBackend,
};

/// A backend with fused bodies for the operations of every level of autodiff: an accelerator or a
/// [`HostBackend`], bare and under two levels.
///
/// The [`StackCall`] has the operands images `[n, c, h, w]`, then weight, bias, gamma and beta of every
/// block, then the moments that are given, if they are: mean and variance of every block. It gives the
/// features `[n, c', h', w']` and untracked vectors of mean and variance of every block's batch, none
/// under running statistics. All operands are f32, but for images on a device; a bias, gamma or beta
/// that is absent comes as zeros, ones or zeros, a bias on a device as any numbers.
///
/// The [`LinearCall`], of linear layers with ReLU between them, has `[t, n, i]`, and weight
/// `[t * i, o]` and bias `[t * o]` of every layer, and gives `[t, n, o]`. All operands are f32; an absent
/// bias comes as zeros. There is at least one lane and one example.
///
/// The shapes fit the call.
pub trait FusedOps: FusedMetrics + Runs<StackCall> + Runs<LinearCall> {
    /// Whether elements of tensors are read and written on the host, at the innermost level.
    const ON_HOST: bool = false;

    /// `y + alpha x`, of f32 and the same shape, or `alpha x` alone.
    fn axpy(y: Option<FloatTensor<Self>>, alpha: f64, x: FloatTensor<Self>) -> FloatTensor<Self> {
        let product = Self::float_mul_scalar(x, alpha.into());
        match y {
            Some(y) => Self::float_add(y, product),
            None => product,
        }
    }
}

impl<B: HostBackend> FusedOps for B {
    const ON_HOST: bool = true;

    fn axpy(y: Option<FloatTensor<B>>, alpha: f64, x: FloatTensor<B>) -> FloatTensor<B> {
        axpy::host::<B>(y, alpha, x)
    }
}

impl<B: TwiceDifferentiableBackend + FusedOps, C: CheckpointStrategy> FusedOps for Autodiff<B, C>
where
    StackCall: TwiceDifferentiable<B::Innermost>,
    LinearCall: TwiceDifferentiable<B::Innermost>,
{
    const ON_HOST: bool = B::ON_HOST;

    fn axpy(y: Option<FloatTensor<Self>>, alpha: f64, x: FloatTensor<Self>) -> FloatTensor<Self> {
        let Some(y) = y else { return Self::float_mul_scalar(x, alpha.into()) };
        let sum = B::axpy(Some(y.primitive.clone()), alpha, x.primitive.clone());
        record::<B, C, 2>([&y, &x], sum, move |g, [of_y, of_x]| {
            [of_y.then(|| g.clone()), of_x.then(|| B::axpy(None, alpha, g))]
        })
    }
}

/// The table of the functions of a trait that a backend implements.
macro_rules! function_table {
    ($(#[$attribute:meta])* $name:ident of $trait:ident {
        $($visible:vis $function:ident: $type:ty),* $(,)?
    }) => {
        $(#[$attribute])*
        #[allow(clippy::type_complexity)]
        pub(crate) struct $name<B: Backend> {
            $($visible $function: $type),*
        }

        impl<B: $trait> $name<B> {
            // Unit tests are about the host, and register no accelerator.
            #[cfg_attr(any(test, not(feature = "cube")), allow(dead_code))]
            pub(crate) fn new() -> Self {
                Self { $($function: B::$function),* }
            }
        }
    };
}
pub(crate) use function_table;

/// The fused stacks of a backend.
#[allow(clippy::type_complexity)]
pub(crate) struct StackTable<B: Backend> {
    pub(crate) on_host: bool,
    pub(crate) conv_stack: fn(Vec<FloatTensor<B>>, &StackCall) -> Results<B>,
    pub(crate) linear_stack: fn(Vec<FloatTensor<B>>, &LinearCall) -> FloatTensor<B>,
    pub(crate) axpy: fn(Option<FloatTensor<B>>, f64, FloatTensor<B>) -> FloatTensor<B>,
}

/// Which way the operations of a backend go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Fused bodies over slices of host memory, with the instruction set they run on.
    Host(&'static str),
    /// Kernels on an accelerator, with what they are written in.
    Device(&'static str),
    /// Plain Burn operations: the backend is not registered.
    Reference,
    /// Plain Burn operations, because `FEWSHOT_KERNELS=reference` or
    /// [`with_reference`](crate::with_reference) asks for them.
    Forced,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(body) | Self::Device(body) => write!(f, "fused ({body})"),
            Self::Reference => f.write_str("reference"),
            Self::Forced => f.write_str("reference (asked for)"),
        }
    }
}

type Registry = HashMap<TypeId, &'static (dyn Any + Send + Sync)>;

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(|| RwLock::new(built_in()));

/// Opens all fused paths to a [`HostBackend`] of your own, bare, under autodiff and under two levels of it
/// of which the outer one keeps everything; to other stacks by [`register`]. Registering twice changes
/// nothing.
///
/// `Flex`, `NdArray<f32, i64>` and `Candle<f32, i64>` are registered from the start.
pub fn register_host<B: HostBackend>() {
    insert_host::<B>(&mut REGISTRY.write().unwrap_or_else(PoisonError::into_inner));
}

/// Opens the fused path to `B`, for instance another accelerator of CubeCL's; to `Autodiff<B>` and
/// `Autodiff<Autodiff<B>>` by calls of their own, and to the steps of optimizers by [`register_steps`].
pub fn register<B: FusedOps>() {
    insert::<B>(&mut REGISTRY.write().unwrap_or_else(PoisonError::into_inner));
}

/// Opens the fused path of optimizer steps and of local learning to `B`, an accelerator without autodiff.
pub fn register_steps<B: FusedSteps + FusedLocalLearning>() {
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    add(&mut registry, StepTable::<B>::new);
    add(&mut registry, LocalTable::<B>::new);
}

/// Opens the fused paths that only an accelerator has to `B`: those of lists of tensors
/// ([`axpy_all`](crate::axpy_all)), of [`gather_images`](crate::gather_images()) and of
/// [`task_loss`](crate::task_loss()); to `Autodiff<B>` and `Autodiff<Autodiff<B>>` by calls of their own.
pub fn register_accelerator<B: FusedAxpy + FusedGather + Runs<TaskLossCall>>() {
    insert_accelerator::<B>(&mut REGISTRY.write().unwrap_or_else(PoisonError::into_inner));
}

/// The path that the operations of `B` take in this process.
///
/// Set the environment variable `FEWSHOT_KERNELS=reference` before the first operation to force
/// plain Burn operations, for instance to see whether a wrong result comes from a fused body; with
/// the name of a set of instructions (`amx`, which is AVX-512 with products of bf16 in tiles, `avx512`,
/// `avx2`, `neon`, `portable`), fused bodies run on that one.
///
/// # Panics
/// Where [`check_environment`] finds an error.
pub fn route<B: Backend>() -> Route {
    if environment::wants_reference() {
        return Route::Forced;
    }
    match table::<StackTable<B>>() {
        Some(StackTable { on_host: true, .. }) => Route::Host(environment::chosen().name()),
        Some(StackTable { on_host: false, .. }) => Route::Device("CubeCL"),
        None => Route::Reference,
    }
}

/// Whether the operations of `B` take fused bodies over slices of host memory.
pub(crate) fn on_host<B: Backend>() -> bool {
    table::<StackTable<B>>().is_some_and(|table| table.on_host)
}

/// Tells whether `FEWSHOT_KERNELS` means something here, before an operation has to.
///
/// # Errors
/// If it has another value than [`route`] tells of, or names instructions that this processor lacks.
pub fn check_environment() -> Result<(), UnknownKernels> {
    environment::named(environment::requested()).map(|_| ())
}

/// The table of this type, unless the reference is asked for.
pub(crate) fn table<T: Any + Send + Sync>() -> Option<&'static T> {
    if environment::wants_reference() {
        return None;
    }
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    registry.get(&TypeId::of::<T>())?.downcast_ref()
}

/// This table, if the backend has it and all elements are f32; `operation` is the name of what asks.
pub(crate) fn f32_table<T: Any + Send + Sync>(
    operation: &'static str,
    types: impl IntoIterator<Item = DType>,
) -> Option<&'static T> {
    table().filter(|_| all_f32(operation, types))
}

fn add<T: Any + Send + Sync>(registry: &mut Registry, table: impl FnOnce() -> T) {
    registry.entry(TypeId::of::<T>()).or_insert_with(|| Box::leak(Box::new(table())));
}

fn insert<B: FusedOps>(registry: &mut Registry) {
    add(registry, || StackTable::<B> {
        on_host: B::ON_HOST,
        conv_stack: B::run,
        linear_stack: |operands, call| B::run(operands, call).0,
        axpy: B::axpy,
    });
    add(registry, LayerTable::<B>::new);
    add(registry, MetricTable::<B>::new);
}

fn insert_accelerator<B: FusedAxpy + FusedGather + Runs<TaskLossCall>>(registry: &mut Registry) {
    add(registry, AxpyTable::<B>::new);
    add(registry, GatherTable::<B>::new);
    add(registry, CallTable::<B, TaskLossCall>::new);
}

/// A backend bare, and under one and two levels of autodiff, the inner one with either strategy.
fn insert_host<B: HostBackend>(registry: &mut Registry) {
    type Balanced<B> = Autodiff<B, BalancedCheckpointing>;
    add(registry, StepTable::<B>::new);
    add(registry, HostTable::<B>::new);
    insert::<B>(registry);
    insert::<Autodiff<B>>(registry);
    insert::<Balanced<B>>(registry);
    insert::<Autodiff<Autodiff<B>>>(registry);
    insert::<Autodiff<Balanced<B>>>(registry);
}

/// An accelerator in the same way; where there are two levels of autodiff, both keep everything.
#[cfg(any(feature = "wgpu", feature = "cuda", feature = "rocm"))]
// Unit tests are about the host, and register no accelerator.
#[cfg_attr(test, allow(dead_code))]
fn insert_device<B>(registry: &mut Registry)
where
    B: InnermostBackend
        + FusedSteps
        + FusedOps
        + FusedAxpy
        + FusedGather
        + FusedLocalLearning
        + MeasuredLimits,
    StackCall: TwiceDifferentiable<B>,
    LinearCall: TwiceDifferentiable<B>,
    TaskLossCall: TwiceDifferentiable<B>,
{
    fn insert_all<B>(registry: &mut Registry)
    where
        B: FusedOps + FusedAxpy + FusedGather + Runs<TaskLossCall>,
    {
        insert::<B>(registry);
        insert_accelerator::<B>(registry);
    }
    add(registry, StepTable::<B>::new);
    add(registry, LocalTable::<B>::new);
    add(registry, LimitTable::<B>::new);
    insert_all::<B>(registry);
    insert_all::<Autodiff<B>>(registry);
    insert_all::<Autodiff<B, BalancedCheckpointing>>(registry);
    insert_all::<Autodiff<Autodiff<B>>>(registry);
}

fn built_in() -> Registry {
    #[allow(unused_mut)]
    let mut registry = Registry::new();
    #[cfg(feature = "flex")]
    insert_host::<burn::backend::Flex>(&mut registry);
    // Unit tests are about one host, and registering the others would take the compiler minutes more.
    #[cfg(all(feature = "ndarray", not(test)))]
    insert_host::<burn::backend::NdArray<f32, i64>>(&mut registry);
    #[cfg(all(feature = "candle", not(test)))]
    #[allow(deprecated)]
    insert_host::<burn::backend::Candle<f32, i64>>(&mut registry);
    // The feature `fusion` decides what these are.
    #[cfg(all(feature = "wgpu", not(test)))]
    insert_device::<burn::backend::Wgpu<f32, i32, u32>>(&mut registry);
    #[cfg(all(feature = "cuda", not(test)))]
    insert_device::<burn::backend::Cuda<f32, i32>>(&mut registry);
    #[cfg(all(feature = "rocm", not(test)))]
    insert_device::<burn::backend::Rocm<f32, i32, u8>>(&mut registry);
    registry
}
