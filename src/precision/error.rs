use burn::tensor::DType;
use thiserror::Error;

/// Errors of a scaled loss.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ScaleError {
    /// A number that makes no sense.
    #[error("the {name} must be {expected}, found {value}")]
    Setting { name: &'static str, expected: String, value: f64 },
    /// Gradients of a loss that had another scale than the present one.
    #[error("gradients of a loss scaled by {scale} came while the loss scale is {present}")]
    OtherScale { scale: f32, present: f32 },
    /// Gradients in half precision, which only parameters in half precision have.
    #[error("gradients to unscale must be f32 or f64, as their parameters, found {}", .dtype.name())]
    HalfGradient { dtype: DType },
    /// Gradients that are not finite even at the smallest scale.
    #[error(
        "a gradient is not finite at a loss scale of {scale}, and the scale may not fall below {min}"
    )]
    Underflow { scale: f32, min: f32 },
}
