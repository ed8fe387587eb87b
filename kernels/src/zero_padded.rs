//! Zeros around maps.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// Maps `[n, c, h, w]` with zeros above, to the left, below and to the right, of the maps' type: those of Burn's own `pad` are
/// of its default type, whatever that of the maps.
pub fn zero_padded<B: Backend>(x: Tensor<B, 4>, padding: [usize; 4]) -> Tensor<B, 4> {
    let [top, left, bottom, right] = padding;
    [(2, [top, bottom]), (3, [left, right])].into_iter().fold(x, |x, (axis, counts)| {
        let zeros = counts.map(|count| {
            let mut shape = x.dims();
            shape[axis] = count;
            (count > 0).then(|| Tensor::zeros(shape, (&x.device(), x.dtype())))
        });
        match zeros {
            [None, None] => x,
            [before, behind] => {
                Tensor::cat([before, Some(x), behind].into_iter().flatten().collect(), axis)
            }
        }
    })
}
