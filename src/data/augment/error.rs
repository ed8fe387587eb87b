use crate::data::ImageShape;

/// An augmentation that cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum AugmentError {
    /// A number out of its range.
    #[error("{part}: {quantity} is {allowed}, not {value}")]
    Range { part: &'static str, quantity: &'static str, allowed: &'static str, value: f64 },
    /// An interval whose ends are out of range or out of order.
    #[error("{part}: {quantity} is an interval {allowed}, not {} to {}", value[0], value[1])]
    Interval { part: &'static str, quantity: &'static str, allowed: &'static str, value: [f64; 2] },
    /// A change of colours in images without colours.
    #[error("{part} changes colours, and images of {shape} have none")]
    NoColor { part: &'static str, shape: ImageShape },
    /// A name that no part and no preset has.
    #[error(
        "{name:?} is no augmentation: there are none, flip-crop, standard, strong, and the parts crop, pad, flip, \
         jitter, grey, rotate and erase"
    )]
    Unknown { name: String },
    /// A value that is no number, or one too many.
    #[error("{part}={value}: write {expected}")]
    Value { part: String, value: String, expected: &'static str },
    /// A preset after other parts, or `none` beside others.
    #[error("{name} must be {place}")]
    Order { name: String, place: &'static str },
}
