use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

pub use fewshot_kernels::conv_stack::reference::max_pool;

/// Mean over all positions of each channel: `[n, c, h, w]` to `[n, c]`.
///
/// The PyTorch equivalent is `x.mean((2, 3))`.
pub fn global_avg_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 2> {
    let [n, c, h, w] = x.dims();
    x.reshape([n, c, h * w]).mean_dim(2).reshape([n, c])
}
