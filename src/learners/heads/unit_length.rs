use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// `x` over its Euclidean length along `dim`, or over 1e-12 if that is more: PyTorch's
/// `F.normalize`.
pub(in crate::learners) fn unit_length<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    dim: usize,
) -> Tensor<B, D> {
    // Clamped before the root, whose derivative at zero is infinite.
    let length = x.clone().square().sum_dim(dim).clamp_min(1e-24).sqrt();
    x / length
}
