//! Shapes of one convolution.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// Sizes of a convolution of square windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    /// Images.
    pub n: usize,
    /// Input channels, of one lane.
    pub c: usize,
    /// Input height.
    pub h: usize,
    /// Input width.
    pub w: usize,
    /// Output channels, of one lane.
    pub o: usize,
    /// Side of the window.
    pub kernel: usize,
    /// Distance between windows.
    pub stride: usize,
    /// Zeros on every side of the input.
    pub padding: usize,
    /// Convolutions side by side in the channels, which are those of one of them.
    pub lanes: usize,
    /// True if tensor cores may round operands of f32 to TF32.
    pub tf32: bool,
}

/// One of the three operands of the trilinear form `<dy, conv(x, w)>`.
///
/// In the order of the variants, the first follows the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `x` `[n, c, h, w]`.
    Input,
    /// `w` `[o, c, k, k]`.
    Weight,
    /// `dy` `[n, o, h', w']`.
    Output,
}

impl Role {
    /// The role after this one.
    pub fn next(self) -> Self {
        match self {
            Self::Input => Self::Weight,
            Self::Weight => Self::Output,
            Self::Output => Self::Input,
        }
    }
}

impl ConvShape {
    /// Height and width of the output.
    pub fn output_size(&self) -> [usize; 2] {
        [self.h, self.w].map(|side| (side + 2 * self.padding - self.kernel) / self.stride + 1)
    }

    /// Shape of the operand in a role.
    pub fn of(&self, role: Role) -> [usize; 4] {
        let [height, width] = self.output_size();
        match role {
            Role::Input => [self.n, self.lanes * self.c, self.h, self.w],
            Role::Weight => [self.lanes * self.o, self.c, self.kernel, self.kernel],
            Role::Output => [self.n, self.lanes * self.o, height, width],
        }
    }
}

/// The shape of the convolution.
///
/// # Panics
/// With what does not fit.
pub(crate) fn check<B: Backend>(
    maps: [usize; 4],
    weight: [usize; 4],
    bias: Option<&Tensor<B, 1>>,
    (stride, padding): (usize, usize),
) -> ConvShape {
    let ([n, c, h, w], [o, i, kernel, width]) = (maps, weight);
    assert!(!maps.contains(&0), "a convolution needs images with pixels, found the shape {maps:?}");
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
    ConvShape { n, c, h, w, o, kernel, stride, padding, lanes: 1, tf32: false }
}
