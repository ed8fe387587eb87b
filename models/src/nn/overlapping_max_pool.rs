use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::module::{max_pool2d, max_pool2d_with_indices};

/// The largest value of each 3x3 window, which lie two pixels apart and begin one before the edge.
///
/// Burn's own pool cannot be differentiated twice. Here the pool says where the largest values are, and they are gathered from
/// there, whose derivative is a scatter and whose second derivative is a gather again.
///
/// # Shapes
/// `[n, c, h, w]` to `[n, c, ceil(h / 2), ceil(w / 2)]`
pub(crate) fn overlapping_max_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 4> {
    if !B::ad_enabled(&x.device()) {
        return max_pool2d(x, [3; 2], [2; 2], [1; 2], [1; 2], false);
    }
    let ([n, c, h, w], constant) = (x.dims(), x.clone().detach());
    let (pooled, places) = max_pool2d_with_indices(constant, [3; 2], [2; 2], [1; 2], [1; 2], false);
    let shape @ [_, _, rows, columns] = pooled.dims();
    let places = places.reshape([n * c, rows * columns]);
    x.reshape([n * c, h * w]).gather(1, places).reshape(shape)
}
