//! `y + alpha x` of whole lists of tensors.

use burn::tensor::TensorMetadata;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::one;
use crate::fallback::all_f32;
use crate::lists::{has_elements, in_groups, in_parts};
use crate::registry::{self, function_table};

/// A backend with fused bodies over lists of tensors.
///
/// A list has at least one tensor. All are f32, of any shape and layout, have elements and lie on one
/// device.
pub trait FusedAxpy: Backend {
    /// `y + alpha x` of each `y` and the `x` in its place, which has its shape, or `alpha x` alone.
    fn axpy_all(
        ys: Option<Vec<FloatTensor<Self>>>,
        alpha: f64,
        xs: Vec<FloatTensor<Self>>,
    ) -> Vec<FloatTensor<Self>>;

    /// The same twice.
    fn fan_out(xs: Vec<FloatTensor<Self>>) -> [Vec<FloatTensor<Self>>; 2] {
        [xs.clone(), xs]
    }
}

function_table! {
    /// The functions of those.
    AxpyTable of FusedAxpy {
        axpy_all: fn(Option<Vec<FloatTensor<B>>>, f64, Vec<FloatTensor<B>>) -> Vec<FloatTensor<B>>,
        fan_out: fn(Vec<FloatTensor<B>>) -> [Vec<FloatTensor<B>>; 2],
    }
}

/// [`axpy`](crate::axpy()) of each of `ys` and the tensor of `xs` in its place: tensors of any shapes, in
/// one pass over all of them.
///
/// # Conventions
/// On an accelerator it is one operation, on the graph too, and the product may be rounded together
/// with the sum. On a host, and of elements other than f32, it is one [`axpy`](crate::axpy()) after the
/// other.
///
/// # Panics
/// When there are more of the one than of the other, or shapes differ.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use fewshot_kernels::axpy_all;
///
/// let weights = Tensor::<Flex, 1>::from_floats([3.0, 4.0], &Default::default());
/// let gradient = Tensor::<Flex, 1>::from_floats([1.0, -2.0], &Default::default());
/// let [weights, gradient] = [weights, gradient].map(|one| one.into_primitive().tensor());
/// let moved = axpy_all::<Flex>(vec![weights], -0.5, vec![gradient]);
/// assert_eq!(moved[0].as_slice::<f32>(), Some(&[2.5, 5.0][..]));
/// ```
pub fn axpy_all<B: Backend>(
    ys: Vec<FloatTensor<B>>,
    alpha: f64,
    xs: Vec<FloatTensor<B>>,
) -> Vec<FloatTensor<B>> {
    assert_eq!(ys.len(), xs.len(), "a sum for every pair of terms");
    for (y, x) in ys.iter().zip(&xs) {
        assert_eq!(y.shape(), x.shape(), "both terms of a sum have the same shape");
    }
    let pairs: Vec<_> = ys.into_iter().zip(xs).collect();
    let alone = |(y, x)| one::<B>(y, alpha, x);
    let Some(table) = registry::table::<AxpyTable<B>>() else {
        return pairs.into_iter().map(alone).collect();
    };
    let takes = |(y, x): &(FloatTensor<B>, FloatTensor<B>)| {
        has_elements(y) && all_f32("axpy_all", [y.dtype(), x.dtype()])
    };
    let batched = |_, pairs: Vec<(_, _)>| {
        let (ys, xs) = pairs.into_iter().unzip();
        (table.axpy_all)(Some(ys), alpha, xs)
    };
    let device = |(y, _): &(FloatTensor<B>, _)| B::float_device(y);
    in_parts(pairs, takes, |pairs| in_groups(pairs, device, batched), alone)
}

/// `alpha x` of each of `xs`, tensors of any shapes: one operation on an accelerator, on the graph too,
/// where elements are f32.
pub fn scaled_all<B: Backend>(xs: Vec<FloatTensor<B>>, alpha: f64) -> Vec<FloatTensor<B>> {
    let alone = |x| match has_elements(&x) {
        true => B::float_mul_scalar(x, alpha.into()),
        false => x,
    };
    let Some(table) = registry::table::<AxpyTable<B>>() else {
        return xs.into_iter().map(alone).collect();
    };
    let takes = |x: &FloatTensor<B>| has_elements(x) && all_f32("scaled_all", [x.dtype()]);
    let batched = |_, xs| (table.axpy_all)(None, alpha, xs);
    in_parts(xs, takes, |xs| in_groups(xs, B::float_device, batched), alone)
}

/// `xs` for two users, tensors of any shapes. Where they are on a graph of an accelerator, the gradients
/// that come back from both are added in one operation for all tensors; Burn would add them one by one.
pub fn fan_out<B: Backend>(xs: Vec<FloatTensor<B>>) -> [Vec<FloatTensor<B>>; 2] {
    let types = || xs.iter().map(TensorMetadata::dtype);
    let one_device =
        || xs.windows(2).all(|two| B::float_device(&two[0]) == B::float_device(&two[1]));
    match registry::table::<AxpyTable<B>>() {
        Some(table)
            if xs.iter().all(has_elements) && all_f32("fan_out", types()) && one_device() =>
        {
            (table.fan_out)(xs)
        }
        _ => [xs.clone(), xs],
    }
}
