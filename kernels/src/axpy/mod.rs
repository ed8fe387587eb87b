//! `y + alpha x` in one pass, as an inner step of meta-learning takes it, of one tensor or of whole lists.

mod autodiff;
#[cfg(feature = "cube")]
#[allow(clippy::too_many_arguments)]
mod cube;
#[cfg(feature = "fusion")]
mod fusion;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorMetadata};
use rayon::prelude::*;

use crate::fallback::all_f32;
use crate::host::{HostBackend, elements, unwrap, wrap, write_shape};
use crate::lists::{has_elements, in_groups, in_parts};
use crate::registry::{self, Body, Operation, Runs};
use crate::twice_differentiable::InnermostBackend;

/// `y + alpha * x`.
///
/// # Shapes
/// `x` and `y` have the same shape.
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
    match registry::f32_body::<B, Axpy>("axpy", [x.dtype(), y.dtype()]) {
        Some(body) => body((Some(y), x), &Axpy { alpha }),
        None if has_elements(&x) => B::float_add(y, B::float_mul_scalar(x, alpha.into())),
        None => y,
    }
}

/// Floats that a thread takes at once: so much work pays for waking it.
const CHUNK: usize = 1 << 16;

/// `y + alpha x`, of f32 and the same shape, or `alpha x` alone.
pub(crate) struct Axpy {
    alpha: f64,
}

impl Operation for Axpy {
    type Operands<B: Backend> = (Option<FloatTensor<B>>, FloatTensor<B>);
    type Results<B: Backend> = FloatTensor<B>;
}

impl<H: HostBackend> Runs<Axpy> for H {
    fn run(
        (y, x): (Option<FloatTensor<H>>, FloatTensor<H>),
        &Axpy { alpha }: &Axpy,
    ) -> FloatTensor<H> {
        let y = y.as_ref().map(elements::<H>);
        let sum = computed(&elements::<H>(&x), y.as_deref(), alpha as f32);
        write_shape::<H>(sum, x.shape(), &H::float_device(&x))
    }
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

/// [`axpy`](crate::axpy()) of each `y` and the `x` in its place, or `alpha x` alone.
///
/// A list, here and in [`FanOut`] and [`SeedCotangents`], has at least one tensor. All are f32, of any shape
/// and layout, have elements and lie on one device.
pub(crate) struct AxpyAll {
    alpha: f64,
}

impl Operation for AxpyAll {
    type Operands<B: Backend> = (Option<Vec<FloatTensor<B>>>, Vec<FloatTensor<B>>);
    type Results<B: Backend> = Vec<FloatTensor<B>>;
}

/// See [`fan_out`].
pub(crate) struct FanOut;

impl Operation for FanOut {
    type Operands<B: Backend> = Vec<FloatTensor<B>>;
    type Results<B: Backend> = [Vec<FloatTensor<B>>; 2];
}

impl<B: InnermostBackend> Runs<FanOut> for B {
    fn run(xs: Vec<FloatTensor<B>>, _: &FanOut) -> [Vec<FloatTensor<B>>; 2] {
        [xs.clone(), xs]
    }
}

/// See [`seed_cotangents`]; the operands are the tensors and their cotangents.
pub(crate) struct SeedCotangents;

impl Operation for SeedCotangents {
    type Operands<B: Backend> = [Vec<FloatTensor<B>>; 2];
    type Results<B: Backend> = FloatTensor<B>;
}

/// A zero: nothing has a gradient there.
impl<B: InnermostBackend> Runs<SeedCotangents> for B {
    fn run([xs, _]: [Vec<FloatTensor<B>>; 2], _: &SeedCotangents) -> FloatTensor<B> {
        B::float_zeros([1].into(), &B::float_device(&xs[0]), DType::F32.into())
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
    summed::<B>("axpy_all", ys.into_iter().map(Some).zip(xs), alpha)
}

/// `alpha x` of each of `xs`, tensors of any shapes: one operation on an accelerator, on the graph too,
/// where elements are f32.
pub fn scaled_all<B: Backend>(xs: Vec<FloatTensor<B>>, alpha: f64) -> Vec<FloatTensor<B>> {
    summed::<B>("scaled_all", xs.into_iter().map(|x| (None, x)), alpha)
}

/// `y + alpha x` of each pair, or `alpha x` where no pair has a `y`.
fn summed<B: Backend>(
    operation: &'static str,
    pairs: impl Iterator<Item = (Option<FloatTensor<B>>, FloatTensor<B>)>,
    alpha: f64,
) -> Vec<FloatTensor<B>> {
    type Pair<B> = (Option<FloatTensor<B>>, FloatTensor<B>);
    let alone = |(y, x): Pair<B>| match y {
        Some(y) => one::<B>(y, alpha, x),
        None if has_elements(&x) => B::float_mul_scalar(x, alpha.into()),
        None => x,
    };
    let Some(body) = registry::body::<B, AxpyAll>() else {
        return pairs.map(alone).collect();
    };
    let takes = |(y, x): &Pair<B>| {
        has_elements(x) && all_f32(operation, y.iter().chain([x]).map(TensorMetadata::dtype))
    };
    let batched = |_, pairs: Vec<Pair<B>>| {
        let (ys, xs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        body((ys.into_iter().collect(), xs), &AxpyAll { alpha })
    };
    let device = |(_, x): &Pair<B>| B::float_device(x);
    in_parts(pairs.collect(), takes, |pairs| in_groups(pairs, device, batched), alone)
}

/// `xs` for two users, tensors of any shapes. Where they are on a graph of an accelerator, the gradients
/// that come back from both are added in one operation for all tensors; Burn would add them one by one.
pub fn fan_out<B: Backend>(xs: Vec<FloatTensor<B>>) -> [Vec<FloatTensor<B>>; 2] {
    match whole_lists::<B, FanOut>("fan_out", &xs) {
        Some(body) => body(xs, &FanOut),
        None => [xs.clone(), xs],
    }
}

/// A number, `[1]`, whose `backward` gives each of `xs` the cotangent in its place, a constant of its shape: that
/// of the sum of their products. PyTorch's `torch.autograd.backward(xs, cotangents)`.
///
/// # Conventions
/// On an accelerator the number is 0 and nothing is multiplied: cotangents come back as they are, so that
/// `backward` is to be called on the number or on its sum with other terms. Elsewhere it is the sum of products.
///
/// # Panics
/// When there are no `xs`, more of the one than of the other, or shapes differ.
///
/// # Example
/// ```
/// use burn::backend::{Autodiff, Flex};
/// use burn::tensor::{Tensor, TensorPrimitive};
/// use fewshot_kernels::seed_cotangents;
///
/// type B = Autodiff<Flex>;
/// let device = Default::default();
/// let x = Tensor::<B, 1>::from_floats([3.0, 4.0], &device).require_grad();
/// let cotangent = Tensor::<B, 1>::from_floats([0.5, -1.0], &device);
/// let [y, cotangent] = [x.clone() * 2.0, cotangent].map(|one| one.into_primitive().tensor());
/// let seed = seed_cotangents::<B>(vec![y], vec![cotangent]);
/// let gradients = Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(seed)).backward();
/// assert_eq!(x.grad(&gradients).unwrap().into_data().as_slice::<f32>().unwrap(), [1.0, -2.0]);
/// ```
pub fn seed_cotangents<B: Backend>(
    xs: Vec<FloatTensor<B>>,
    cotangents: Vec<FloatTensor<B>>,
) -> FloatTensor<B> {
    assert_eq!(xs.len(), cotangents.len(), "a cotangent for every tensor");
    assert!(!xs.is_empty(), "cotangents of one tensor at least");
    for (x, cotangent) in xs.iter().zip(&cotangents) {
        assert_eq!(x.shape(), cotangent.shape(), "a cotangent has the shape of its tensor");
    }
    if let Some(body) = whole_lists::<B, SeedCotangents>("seed_cotangents", &xs) {
        return body([xs, cotangents], &SeedCotangents);
    }
    let device = B::float_device(&xs[0]);
    let pairs = xs.into_iter().zip(cotangents).filter(|(x, _)| has_elements(x));
    let products = pairs.map(|(x, cotangent)| B::float_sum(B::float_mul(x, cotangent)));
    let zero = || B::float_zeros([1].into(), &device, DType::F32.into());
    products.reduce(B::float_add).unwrap_or_else(zero)
}

/// The body of `O`, if it takes all of `xs` together.
fn whole_lists<B: Backend, O: Operation>(
    operation: &'static str,
    xs: &[FloatTensor<B>],
) -> Option<Body<B, O>> {
    let types = || xs.iter().map(TensorMetadata::dtype);
    let one_device =
        || xs.windows(2).all(|two| B::float_device(&two[0]) == B::float_device(&two[1]));
    registry::body::<B, O>()
        .filter(|_| xs.iter().all(has_elements) && all_f32(operation, types()) && one_device())
}
