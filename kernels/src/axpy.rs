//! `y + alpha x` in one pass, as an inner step of meta-learning takes it.

mod all;
mod autodiff;
#[cfg(feature = "cube")]
#[allow(clippy::too_many_arguments)]
mod cube;
#[cfg(feature = "fusion")]
mod fusion;

pub(crate) use all::AxpyTable;
pub use all::{FusedAxpy, axpy_all, fan_out, scaled_all, seed_cotangents};

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};
use rayon::prelude::*;

use crate::host::{HostBackend, elements, unwrap, wrap, write_shape};
use crate::lists::has_elements;
use crate::registry::{self, StackTable};

/// `y + alpha * x`.
///
/// # Shapes
/// `x` and `y` have the same.
///
/// # Conventions
/// The product is rounded before the sum, as in two operations. On a host it is one pass on all
/// threads, and so is its gradient where that is not differentiated itself; elsewhere it is these
/// operations.
pub fn axpy<B: Backend, const D: usize>(
    y: Tensor<B, D>,
    alpha: f64,
    x: Tensor<B, D>,
) -> Tensor<B, D> {
    assert_eq!(x.dims(), y.dims(), "both terms of a sum have the same shape");
    wrap(one::<B>(unwrap(y), alpha, unwrap(x)))
}

/// [`axpy`] of any rank.
fn one<B: Backend>(y: FloatTensor<B>, alpha: f64, x: FloatTensor<B>) -> FloatTensor<B> {
    match registry::f32_table::<StackTable<B>>("axpy", [x.dtype(), y.dtype()]) {
        Some(table) => (table.axpy)(Some(y), alpha, x),
        None if has_elements(&x) => B::float_add(y, B::float_mul_scalar(x, alpha.into())),
        None => y,
    }
}

/// Floats that a thread takes at once: so much work pays for waking it.
const CHUNK: usize = 1 << 16;

/// `y + alpha x`, or `alpha x` alone, on the host.
pub(crate) fn host<B: HostBackend>(
    y: Option<FloatTensor<B>>,
    alpha: f64,
    x: FloatTensor<B>,
) -> FloatTensor<B> {
    let y = y.as_ref().map(elements::<B>);
    let sum = computed(&elements::<B>(&x), y.as_deref(), alpha as f32);
    write_shape::<B>(sum, x.shape(), &B::float_device(&x))
}

/// `y + alpha x`, or `alpha x` alone.
fn computed(x: &[f32], y: Option<&[f32]>, alpha: f32) -> Vec<f32> {
    if let Some(y) = y {
        assert_eq!(x.len(), y.len(), "both terms of a sum have the same length");
    }
    let mut all = Vec::with_capacity(x.len());
    let chunks = all.spare_capacity_mut()[..x.len()].par_chunks_mut(CHUNK);
    chunks.zip(x.par_chunks(CHUNK)).enumerate().for_each(|(index, (to, x))| match y {
        Some(y) => {
            let terms = x.iter().zip(&y[index * CHUNK..][..x.len()]);
            to.iter_mut().zip(terms).for_each(|(to, (x, y))| _ = to.write(y + x * alpha));
        }
        None => to.iter_mut().zip(x).for_each(|(to, x)| _ = to.write(x * alpha)),
    });
    // SAFETY: a chunk is as long as that of `x` and the slice of `y` beside it, so every place up to
    // the length of `x` was written.
    unsafe { all.set_len(x.len()) };
    all
}
