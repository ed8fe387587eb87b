use burn::tensor::DType;
use thiserror::Error;

/// What can go wrong with a scaled loss.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ScaleError {
    /// A number that makes no sense.
    #[error("the {name} must be {wanted}, found {found}")]
    Setting {
        /// Which number.
        name: &'static str,
        /// What it may be.
        wanted: String,
        /// What it is.
        found: f64,
    },
    /// Gradients of a loss that had another scale than the present one.
    #[error("gradients of a loss scaled by {found} came while the loss scale is {present}")]
    OtherScale {
        /// Their scale.
        found: f32,
        /// The scale now.
        present: f32,
    },
    /// Gradients in half precision, as only those of parameters in half precision are.
    #[error("gradients to unscale must be f32 or f64, as their parameters, found {}", .found.name())]
    HalfGradient {
        /// The data type of one.
        found: DType,
    },
    /// Gradients that are not finite even at the smallest scale.
    #[error(
        "a gradient is not finite at a loss scale of {scale}, and the scale may not fall below {min}"
    )]
    Underflow {
        /// The scale now.
        scale: f32,
        /// The smallest scale allowed.
        min: f32,
    },
}
