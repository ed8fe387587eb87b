use fewshot_kernels::augment_images::Rotation;
use serde::{Deserialize, Serialize};

use super::{AugmentError, Result};
use crate::random::Stream;

/// A turn around the middle by a random angle, bilinear; corners of the image leave it, and what comes in is black.
///
/// # Conventions
/// torchvision's `RandomRotation(degrees, InterpolationMode.BILINEAR)`; positive angles turn to the left.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RandomRotation {
    /// Greatest angle in degrees, to either side; 15 by default.
    pub degrees: f64,
}

impl Default for RandomRotation {
    fn default() -> Self {
        Self { degrees: 15.0 }
    }
}

impl RandomRotation {
    pub(super) fn check(&self) -> Result {
        match (0.0..=180.0).contains(&self.degrees) {
            true => Ok(()),
            false => Err(AugmentError::Range {
                part: "rotate",
                quantity: "the greatest angle",
                allowed: "from 0 to 180 degrees",
                value: self.degrees,
            }),
        }
    }

    pub(super) fn draw(&self, random: &mut Stream) -> Rotation {
        rotation_of(random.between(-self.degrees, self.degrees))
    }
}

/// The turn by an angle in degrees.
pub(super) fn rotation_of(degrees: f64) -> Rotation {
    let angle = degrees.to_radians();
    // As PIL rounds them, so that a quarter turn is exact.
    let [cos, sin] = [libm::cos(angle), libm::sin(angle)].map(|of| (of * 1e15).round() / 1e15);
    Rotation { cos, sin }
}
