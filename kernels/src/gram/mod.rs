//! The scalar products of all rows with each other.

mod cpu;
pub(crate) mod host;
pub mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorMetadata};

use crate::host::{unwrap, wrap};
use crate::optim_step::StepTable;
use crate::registry;

/// The Gram matrices `x x^T`.
///
/// A host computes one triangle of each matrix and mirrors it, tasks in parallel. It works below autodiff: on a
/// backend that differentiates, the plain product runs, and gradients flow.
///
/// # Shapes
/// - `x`: `[t, m, d]`
/// - returns `[t, m, m]`
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use fewshot_kernels::gram;
///
/// let x = Tensor::<Flex, 3>::from_data([[[1.0, 2.0], [3.0, 4.0]]], &Default::default());
/// let products = Tensor::<Flex, 3>::from_data([[[5.0, 11.0], [11.0, 25.0]]], &x.device());
/// assert_eq!(gram(x).into_data(), products.into_data());
/// ```
pub fn gram<B: Backend>(x: Tensor<B, 3>) -> Tensor<B, 3> {
    let x = unwrap(x);
    wrap(match registry::f32_table::<StepTable<B>>("gram", [x.dtype()]) {
        Some(table) => (table.gram)(x),
        None => reference::gram::<B>(x),
    })
}
