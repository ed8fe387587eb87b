//! The table of fused bodies, by operation and backend. It knows lookup, and no operation.
//!
//! A backend [`Runs`] an [`Operation`]; the table has the function that does so, by their types. The table
//! fills itself on first use with the backends of the enabled features (`backends.rs`).

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{LazyLock, PoisonError, RwLock};

use burn::tensor::DType;
use burn::tensor::backend::Backend;

use crate::environment::{self, UnknownKernels};
use crate::fallback::{all_f32, goes_into_f32};

/// An operation of a backend, or a question about its device: the settings of a call.
pub trait Operation: 'static {
    /// The tensors that the operation takes, of checked types and shapes.
    type Operands<B: Backend>;
    /// The tensors that it gives.
    type Results<B: Backend>;
}

/// A backend with a fused body for the operation `O`. A backend without one runs the reference.
pub trait Runs<O: Operation>: Backend {
    /// The body; on the graph of the operands if they have one.
    fn run(operands: O::Operands<Self>, call: &O) -> O::Results<Self>;
}

/// The function that runs `O` on `B`.
pub(crate) type Body<B, O> = fn(<O as Operation>::Operands<B>, &O) -> <O as Operation>::Results<B>;

/// A place of the table.
struct Entry<B: Backend, O: Operation>(Body<B, O>);

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
            pub(crate) fn new() -> Self {
                Self { $($function: B::$function),* }
            }
        }
    };
}
pub(crate) use function_table;

/// The memory that a backend computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Host memory, at the innermost level of autodiff.
    Host,
    /// An accelerator's.
    Device,
}

/// The [`Place`] of a backend.
struct PlaceOf<B>(Place, PhantomData<fn() -> B>);

/// The path that the operations of a backend take.
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

/// All tables, by their types.
#[derive(Default)]
pub(crate) struct Registry(HashMap<TypeId, &'static (dyn Any + Send + Sync)>);

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(|| RwLock::new(Registry::built_in()));

impl Registry {
    /// Adds a backend, of which nothing is fused yet.
    pub(crate) fn add_backend<B: Backend>(&mut self, place: Place) {
        self.add(|| PlaceOf::<B>(place, PhantomData));
    }

    /// Adds the body of `O` on `B`.
    pub(crate) fn add_body<B: Runs<O>, O: Operation>(&mut self) {
        self.add(|| Entry::<B, O>(B::run));
    }

    /// Adds a table, unless there is one of this type.
    pub(crate) fn add<T: Any + Send + Sync>(&mut self, table: impl FnOnce() -> T) {
        self.0.entry(TypeId::of::<T>()).or_insert_with(|| Box::leak(Box::new(table())));
    }
}

/// Changes the registry of this process.
pub(crate) fn update(change: impl FnOnce(&mut Registry)) {
    change(&mut REGISTRY.write().unwrap_or_else(PoisonError::into_inner));
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
    match place::<B>() {
        Some(Place::Host) => Route::Host(environment::chosen().name()),
        Some(Place::Device) => Route::Device("CubeCL"),
        None => Route::Reference,
    }
}

fn place<B: Backend>() -> Option<Place> {
    table::<PlaceOf<B>>().map(|table| table.0)
}

/// True if the operations of `B` take fused bodies over slices of host memory.
pub(crate) fn on_host<B: Backend>() -> bool {
    place::<B>() == Some(Place::Host)
}

/// True if the operations of `B` are kernels of an accelerator.
pub(crate) fn on_device<B: Backend>() -> bool {
    place::<B>() == Some(Place::Device)
}

/// The types of tensors that fused bodies of `B` take as they are: f32, on an accelerator f16 and bf16 too.
pub(crate) fn taken<B: Backend>() -> fn(DType) -> bool {
    match on_device::<B>() {
        true => goes_into_f32,
        false => |dtype| dtype == DType::F32,
    }
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
    if environment::wants_reference() { None } else { find() }
}

fn find<T: Any + Send + Sync>() -> Option<&'static T> {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    registry.0.get(&TypeId::of::<T>())?.downcast_ref()
}

/// The body of `O` on `B`, unless the reference is asked for.
pub(crate) fn body<B: Backend, O: Operation>() -> Option<Body<B, O>> {
    table::<Entry<B, O>>().map(|entry| entry.0)
}

/// The body of `O` on `B`, where the reference is asked for as well: of an operation that references are made of.
pub(crate) fn reference_body<B: Backend, O: Operation>() -> Option<Body<B, O>> {
    find::<Entry<B, O>>().map(|entry| entry.0)
}

/// The [`body`], if all elements are f32; `operation` is the name of the public function.
pub(crate) fn f32_body<B: Backend, O: Operation>(
    operation: &'static str,
    types: impl IntoIterator<Item = DType>,
) -> Option<Body<B, O>> {
    body().filter(|_| all_f32(operation, types))
}
