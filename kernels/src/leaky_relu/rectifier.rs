//! The shape of a ReLU.

/// Slope below zero, and the largest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rectifier {
    /// From 0 to 1.
    pub slope: f64,
    /// The gradient is zero from this value on.
    pub most: Option<f64>,
}

impl Rectifier {
    /// The largest value as the host's loops take it: NaN, which nothing reaches, without one.
    pub(crate) fn most_f32(self) -> f32 {
        self.most.map_or(f32::NAN, |most| most as f32)
    }
}
