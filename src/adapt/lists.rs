//! Lists of tensors, all of which an accelerator goes over at once.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};

/// By tensor of a list, `None` where there is no gradient.
pub(crate) type Gradients<B> = Vec<Option<Tensor<B, 1>>>;

/// `y + alpha x` of each `y` and the `x` in its place.
pub(super) fn axpy_all<B: Backend>(
    ys: Vec<Tensor<B, 1>>,
    alpha: f64,
    xs: Vec<Tensor<B, 1>>,
) -> Vec<Tensor<B, 1>> {
    let [ys, xs] = [ys, xs].map(|of| of.into_iter().map(unwrap).collect());
    fewshot_kernels::axpy_all::<B>(ys, alpha, xs).into_iter().map(wrap).collect()
}

/// The same tensors for two users, whose gradients are added for all tensors at once.
pub(super) fn fan_out<B: Backend>(xs: Vec<Tensor<B, 1>>) -> [Vec<Tensor<B, 1>>; 2] {
    let both = fewshot_kernels::fan_out::<B>(xs.into_iter().map(unwrap).collect());
    both.map(|xs| xs.into_iter().map(wrap).collect())
}

/// A number whose `backward` gives each of these the cotangent beside it; `None` for none of them.
pub(super) fn seed_cotangents<B: Backend>(
    pairs: impl Iterator<Item = (Tensor<B, 1>, Tensor<B, 1>)>,
) -> Option<Tensor<B, 1>> {
    let pairs = pairs.map(|(tensor, cotangent)| (unwrap(tensor), unwrap(cotangent)));
    let (tensors, cotangents): (Vec<_>, Vec<_>) = pairs.unzip();
    (!tensors.is_empty()).then(|| wrap(fewshot_kernels::seed_cotangents::<B>(tensors, cotangents)))
}

/// `alpha x` of each that is there.
pub(crate) fn scaled_all<B: Backend>(xs: Gradients<B>, alpha: f64) -> Gradients<B> {
    each_present(xs, |present| fewshot_kernels::scaled_all::<B>(present, alpha))
}

/// The sum over the `lanes` of each that is there: `[lanes * n]` to `[n]`.
pub(crate) fn summed_all<B: Backend>(all: Gradients<B>, lanes: usize) -> Gradients<B> {
    if lanes == 1 {
        return all;
    }
    each_present(all, |present| fewshot_kernels::summed_all::<B>(present, lanes))
}

/// Each as often as there are `lanes`: `[n]` to `[lanes * n]`; below autodiff.
pub(crate) fn tiled_all<B: Backend>(all: Vec<Tensor<B, 1>>, lanes: usize) -> Vec<Tensor<B, 1>> {
    let all = all.into_iter().map(unwrap).collect();
    fewshot_kernels::tiled_all::<B>(all, lanes).into_iter().map(wrap).collect()
}

/// The results of `run` in the places of those that are present.
fn each_present<B: Backend>(
    all: Gradients<B>,
    run: impl FnOnce(Vec<FloatTensor<B>>) -> Vec<FloatTensor<B>>,
) -> Gradients<B> {
    let is_present: Vec<_> = all.iter().map(Option::is_some).collect();
    let mut results = run(all.into_iter().flatten().map(unwrap).collect()).into_iter().map(wrap);
    is_present.into_iter().map(|is_present| is_present.then(|| results.next()).flatten()).collect()
}

fn unwrap<B: Backend>(tensor: Tensor<B, 1>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

fn wrap<B: Backend>(tensor: FloatTensor<B>) -> Tensor<B, 1> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}
