use burn::module::Param;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;

/// Least square of a length that something is divided by: that of PyTorch's `F.normalize`.
pub(super) const LEAST_SQUARE: f64 = 1e-24;

/// Euclidean length of `x` along `dim`, at least 1e-12.
pub(super) fn length<B: Backend, const D: usize>(x: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    // Clamped before the root, whose derivative at zero is infinite.
    x.square().sum_dim(dim).clamp_min(LEAST_SQUARE).sqrt()
}

/// `x` over its Euclidean length along `dim`, or over 1e-12 if that is more: PyTorch's
/// `F.normalize`.
pub(in crate::learners) fn unit_length<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    dim: usize,
) -> Tensor<B, D> {
    x.clone() / length(x, dim)
}

/// `x` `[t, n, d]` plus a row of its task, `[t, 1, d]`.
pub(super) fn shifted<B: Backend>(x: Tensor<B, 3>, row: Tensor<B, 3>) -> Tensor<B, 3> {
    let [tasks, count, _] = x.dims();
    // A product spreads the row: Flex would go through the sum with a middle dimension element by element.
    let ones = Tensor::ones([tasks, count, 1], (&x.device(), x.dtype()));
    x + product(ones, row)
}

/// `x` less a `mean` of its last dimension, if there is one.
///
/// # Panics
/// If it is of another length.
pub(super) fn centred<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    mean: Option<Tensor<B, 1>>,
) -> Tensor<B, D> {
    let Some(mean) = mean else { return x };
    let (found, [length]) = (x.dims(), mean.dims());
    assert_eq!(found[D - 1], length, "a base mean [{length}] does not centre embeddings {found:?}");
    x - mean.unsqueeze()
}

/// A mean that is a parameter of a head and stays as it is.
pub(super) fn fixed_mean<B: Backend>(mean: Tensor<B, 1>) -> Param<Tensor<B, 1>> {
    Param::from_tensor(mean.detach()).set_require_grad(false)
}
