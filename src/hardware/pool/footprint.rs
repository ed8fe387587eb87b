use std::collections::HashSet;
use std::marker::PhantomData;
use std::ops::Deref;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, DType, Int, Shape, Tensor};

use crate::hardware::Bytes;

/// How much memory of its device a value holds.
pub trait Footprint {
    /// The bytes that dropping the value gives back. They do not change while the value lives.
    fn bytes(&self) -> Bytes;
}

/// The bytes of a module's float, integer and boolean tensors: numbers times the size of one,
/// running averages included. Parameters that were not drawn yet are drawn.
///
/// # Conventions
/// Tensors of the same `ParamId` are one and counted once. A clone that was trained apart keeps its
/// ids: where a module has both, weigh them one by one. Quantised values are counted without
/// their scales, and those of less than a byte as one byte. What an allocator adds for alignment
/// is not counted.
pub fn module_bytes<B: Backend, M: Module<B>>(module: &M) -> Bytes {
    let mut weigh = SizeVisitor { seen: HashSet::new(), bytes: 0 };
    module.visit(&mut weigh);
    Bytes(weigh.bytes)
}

struct SizeVisitor {
    seen: HashSet<ParamId>,
    bytes: u64,
}

impl SizeVisitor {
    fn add(&mut self, id: ParamId, shape: &Shape, dtype: DType) {
        if self.seen.insert(id) {
            self.bytes += shape.num_elements() as u64 * dtype.size().max(1) as u64;
        }
    }
}

impl<B: Backend> ModuleVisitor<B> for SizeVisitor {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let value = param.val();
        self.add(param.id, &value.shape(), value.dtype());
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        let value = param.val();
        self.add(param.id, &value.shape(), value.dtype());
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        let value = param.val();
        self.add(param.id, &value.shape(), value.dtype());
    }
}

/// Any Burn module beside the [bytes](module_bytes) of its parameters, weighed once.
///
/// It gives the module by reference alone, so the weight stays true.
#[derive(Clone, Debug)]
pub struct Pooled<B: Backend, M> {
    module: M,
    bytes: Bytes,
    backend: PhantomData<fn() -> B>,
}

impl<B: Backend, M: Module<B>> Pooled<B, M> {
    /// Weighs `module`, and draws the parameters that were not drawn yet.
    pub fn new(module: M) -> Self {
        let bytes = module_bytes::<B, M>(&module);
        Self { module, bytes, backend: PhantomData }
    }

    /// The module itself.
    pub fn into_inner(self) -> M {
        self.module
    }
}

impl<B: Backend, M> Footprint for Pooled<B, M> {
    fn bytes(&self) -> Bytes {
        self.bytes
    }
}

impl<B: Backend, M> Deref for Pooled<B, M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}
