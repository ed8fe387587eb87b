use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::shape::ConvShape;

/// A convolution that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvError {
    /// An input without elements.
    #[error("a convolution needs images with pixels, found the shape {found:?}")]
    Empty {
        /// Shape of the input.
        found: [usize; 4],
    },
    /// A weight that does not take the input's channels, or is not square.
    #[error(
        "a convolution of {channels} channels needs a weight [o, {channels}, k, k], found {found:?}"
    )]
    Weight {
        /// Channels of the input.
        channels: usize,
        /// Shape of the weight.
        found: [usize; 4],
    },
    /// A bias that does not have one value a channel.
    #[error("a convolution to {wanted} channels needs as many values of bias, found {found}")]
    Bias {
        /// Channels of the output.
        wanted: usize,
        /// Length found.
        found: usize,
    },
    /// No distance between windows.
    #[error("the stride of a convolution is at least 1, found 0")]
    Stride,
    /// A window that does not fit the padded image.
    #[error(
        "a {kernel}x{kernel} window does not fit an image of {height}x{width} with {padding} zeros around it"
    )]
    TooSmall {
        /// Side of the window.
        kernel: usize,
        /// Height of the image.
        height: usize,
        /// Width of the image.
        width: usize,
        /// Zeros on every side.
        padding: usize,
    },
}

/// The shape of the convolution.
///
/// # Errors
/// A [`ConvError`] that says what does not fit.
pub fn check<B: Backend>(
    found: [usize; 4],
    weight: [usize; 4],
    bias: Option<&Tensor<B, 1>>,
    (stride, padding): (usize, usize),
) -> Result<ConvShape, ConvError> {
    let ([n, c, h, w], [o, i, kernel, width]) = (found, weight);
    if found.contains(&0) {
        return Err(ConvError::Empty { found });
    }
    if i != c || kernel != width || o == 0 || kernel == 0 {
        return Err(ConvError::Weight { channels: c, found: weight });
    }
    match bias.map(|bias| bias.dims()) {
        Some([found]) if found != o => return Err(ConvError::Bias { wanted: o, found }),
        _ => {}
    }
    if stride == 0 {
        return Err(ConvError::Stride);
    }
    if h.min(w) + 2 * padding < kernel {
        return Err(ConvError::TooSmall { kernel, height: h, width: w, padding });
    }
    Ok(ConvShape { n, c, h, w, o, kernel, stride, padding, lanes: 1 })
}
