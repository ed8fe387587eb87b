//! The scalar products among rows of a matrix.

pub(crate) mod cpu;
mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};

use crate::host::{unwrap, wrap};
use crate::registry::{self, Operation};

/// The Gram matrices `x x^T` of tasks, each with `size` of the rows of `x`.
///
/// A host reads the rows where they are, and computes one triangle of each matrix and mirrors it, tasks in
/// parallel.
///
/// # Shapes
/// - `x`: `[n, d]`
/// - `rows`: `[t * size]`, task by task, each below `n`; a row may come again
/// - returns `[t, size, size]`
///
/// # Panics
/// Where `rows` are not those of whole tasks, or one is not below `n`.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use fewshot_kernels::gram;
///
/// let x = Tensor::<Flex, 2>::from_data([[1.0, 2.0], [9.0, 9.0], [3.0, 4.0]], &Default::default());
/// let products = Tensor::<Flex, 3>::from_data([[[5.0, 11.0], [11.0, 25.0]]], &x.device());
/// assert_eq!(gram(x, &[0, 2], 2).into_data(), products.into_data());
/// ```
pub fn gram<B: Backend>(x: Tensor<B, 2>, rows: &[usize], size: usize) -> Tensor<B, 3> {
    let [count, features] = x.dims();
    assert!(
        rows.len().is_multiple_of(size.max(1)),
        "{} rows are not those of tasks of {size}",
        rows.len()
    );
    if let Some(row) = rows.iter().find(|row| **row >= count) {
        panic!("row {row} of {count}");
    }
    if rows.is_empty() || size * features == 0 {
        let tasks = rows.len().checked_div(size).unwrap_or(0);
        return Tensor::zeros([tasks, size, size], (&x.device(), x.dtype()));
    }
    let x = unwrap(x);
    wrap(match registry::f32_body::<B, Gram>("gram", [x.dtype()]) {
        Some(body) => body(x, &Gram { rows: rows.to_vec(), size }),
        None => reference::gram::<B>(x, rows, size),
    })
}

/// The products among `size` of these rows at a time, at least one row for each of at least one task.
pub(crate) struct Gram {
    rows: Vec<usize>,
    size: usize,
}

impl Operation for Gram {
    type Operands<B: Backend> = FloatTensor<B>;
    type Results<B: Backend> = FloatTensor<B>;
}
