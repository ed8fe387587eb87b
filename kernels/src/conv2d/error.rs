use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::shape::ConvShape;

/// The shape of the convolution.
///
/// # Panics
/// With what does not fit.
pub fn check<B: Backend>(
    found: [usize; 4],
    weight: [usize; 4],
    bias: Option<&Tensor<B, 1>>,
    (stride, padding): (usize, usize),
) -> ConvShape {
    let ([n, c, h, w], [o, i, kernel, width]) = (found, weight);
    assert!(
        !found.contains(&0),
        "a convolution needs images with pixels, found the shape {found:?}"
    );
    assert!(
        i == c && kernel == width && o > 0 && kernel > 0,
        "a convolution of {c} channels needs a weight [o, {c}, k, k], found {weight:?}"
    );
    let values = bias.map_or(o, |bias| bias.dims()[0]);
    assert!(
        values == o,
        "a convolution to {o} channels needs as many values of bias, found {values}"
    );
    assert!(stride > 0, "the stride of a convolution is at least 1, found 0");
    assert!(
        h.min(w) + 2 * padding >= kernel,
        "a {kernel}x{kernel} window does not fit an image of {h}x{w} with {padding} zeros around it"
    );
    ConvShape { n, c, h, w, o, kernel, stride, padding, lanes: 1 }
}
