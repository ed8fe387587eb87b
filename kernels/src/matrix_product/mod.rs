//! Products of matrices in full f32, which the references are made of.
//!
//! Burn's own product multiplies f32 in TF32, with three decimal digits, where an accelerator has tensor
//! cores. A reference that took it would be less exact than the fused bodies that are tested against it.

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "fusion")]
mod fusion;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor};

use crate::host::{unwrap, wrap};
use crate::registry::{self, Operation};

/// The products of matrices `[t, r, k]` and `[t, k, c]` of f32, `[t, r, c]`, which have elements.
pub(crate) struct MatrixProduct;

impl Operation for MatrixProduct {
    type Operands<B: Backend> = [FloatTensor<B>; 2];
    type Results<B: Backend> = FloatTensor<B>;
}

/// Burn's `matmul` of matrices `[.., r, k]` and `[.., k, c]`, `[.., r, c]`; of f32 in full f32 on an accelerator,
/// where the reference is asked for as well.
///
/// # Panics
/// On an accelerator, where the dimensions before the last two differ, or the rows of the right matrices
/// from the columns of the left ones.
pub(crate) fn matrix_product<B: Backend, const D: usize>(
    left: Tensor<B, D>,
    right: Tensor<B, D>,
) -> Tensor<B, D> {
    let is_f32 = [&left, &right].iter().all(|of| of.dtype() == DType::F32);
    let Some(body) = registry::reference_body::<B, MatrixProduct>().filter(|_| is_f32) else {
        return left.matmul(right);
    };
    let sizes = Sizes::of(left.dims(), right.dims());
    let shape = sizes.result(left.dims());
    if let Some(result) = sizes.without_elements(shape, &left.device()) {
        return result;
    }
    let [left, right] = [unwrap(left.reshape(sizes.left())), unwrap(right.reshape(sizes.right()))];
    wrap::<B, 3>(body([left, right], &MatrixProduct)).reshape(shape)
}

/// The sizes of products of matrices.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// Products.
    pub matrices: usize,
    /// Rows of the left matrices.
    pub rows: usize,
    /// Columns of the left matrices, rows of the right ones.
    pub depth: usize,
    /// Columns of the right matrices.
    pub columns: usize,
}

impl Sizes {
    /// # Panics
    /// When the shapes do not fit.
    pub fn of<const D: usize>(left: [usize; D], right: [usize; D]) -> Self {
        let (before, [rows, depth]) = (&left[..D - 2], [left[D - 2], left[D - 1]]);
        let [inner, columns] = [right[D - 2], right[D - 1]];
        let fits = *before == right[..D - 2] && inner == depth;
        assert!(fits, "matrices {left:?} cannot be multiplied with {right:?}");
        Self { matrices: before.iter().product(), rows, depth, columns }
    }

    fn left(&self) -> [usize; 3] {
        [self.matrices, self.rows, self.depth]
    }

    fn right(&self) -> [usize; 3] {
        [self.matrices, self.depth, self.columns]
    }

    /// Shape of the results, of left matrices of this shape.
    pub fn result<const D: usize>(&self, mut left: [usize; D]) -> [usize; D] {
        left[D - 1] = self.columns;
        left
    }

    /// The results of this shape, where they or the sums that they are have no elements.
    pub fn without_elements<B: Backend, const D: usize>(
        &self,
        shape: [usize; D],
        device: &B::Device,
    ) -> Option<Tensor<B, D>> {
        match (shape.contains(&0), self.depth) {
            (true, _) => Some(Tensor::empty(shape, device)),
            (false, 0) => Some(Tensor::zeros(shape, device)),
            _ => None,
        }
    }
}
