use burn::tensor::backend::Backend;
use burn::tensor::module::max_pool2d;
use burn::tensor::{Distribution, Tensor};

/// Sets squares of `size` x `size` pixels to zero, of every map its own, and scales the others so that the sum over
/// all maps is kept on average. A pixel is in a square with a probability of about `rate`; squares of one pixel are dropout.
///
/// # Shapes
/// - `x`: `[n, c, h, w]`, returned in the same shape; squares are no larger than the maps
///
/// # Source
/// Ghiasi et al., "DropBlock: A regularization method for convolutional networks", NeurIPS 2018.
pub fn drop_block<B: Backend>(x: Tensor<B, 4>, rate: f64, size: usize) -> Tensor<B, 4> {
    let [n, c, h, w] = x.dims();
    let size = size.min(h).min(w);
    if rate <= 0.0 || size == 0 {
        return x;
    }
    // Corners of squares lie where a whole square fits.
    let [rows, columns] = [h, w].map(|side| side - size + 1);
    let corner = rate * (h * w) as f64 / ((size * size) as f64 * (rows * columns) as f64);
    let corners = Distribution::Bernoulli(corner.min(1.0));
    let corners = Tensor::<B, 4>::random([n, c, rows, columns], corners, &x.device());
    let dropped = match size {
        1 => corners,
        _ => {
            let edge = size - 1;
            let wide = corners.pad((edge, edge, edge, edge), 0.0);
            max_pool2d(wide, [size, size], [1, 1], [0, 0], [1, 1], false)
        }
    };
    let mask = dropped.neg() + 1.0;
    // All maps may be dropped where they are few and small.
    let share = mask.clone().mean().clamp_min(1e-6);
    x * (mask / share.reshape([1, 1, 1, 1]))
}
