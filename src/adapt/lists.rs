//! Lists of tensors, all of which an accelerator goes over at once.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};

/// `y + alpha x` of each `y` and the `x` in its place.
pub(super) fn axpy_all<B: Backend>(
    ys: Vec<Tensor<B, 1>>,
    alpha: f64,
    xs: Vec<Tensor<B, 1>>,
) -> Vec<Tensor<B, 1>> {
    let [ys, xs] = [ys, xs].map(|of| of.into_iter().map(unwrap).collect());
    fewshot_kernels::axpy_all::<B>(ys, alpha, xs).into_iter().map(wrap).collect()
}

/// `alpha x` of each that is there.
pub(super) fn scaled_all<B: Backend>(
    xs: Vec<Option<Tensor<B, 1>>>,
    alpha: f64,
) -> Vec<Option<Tensor<B, 1>>> {
    let is_there: Vec<_> = xs.iter().map(Option::is_some).collect();
    let there = xs.into_iter().flatten().map(unwrap).collect();
    let mut scaled = fewshot_kernels::scaled_all::<B>(there, alpha).into_iter().map(wrap);
    is_there.into_iter().map(|is_there| is_there.then(|| scaled.next()).flatten()).collect()
}

fn unwrap<B: Backend>(tensor: Tensor<B, 1>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

fn wrap<B: Backend>(tensor: FloatTensor<B>) -> Tensor<B, 1> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}
