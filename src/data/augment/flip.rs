use serde::{Deserialize, Serialize};

use super::{Result, check_probability};
use crate::random::Stream;

/// Left and right change places, with a probability.
///
/// # Conventions
/// torchvision's `RandomHorizontalFlip`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HorizontalFlip {
    /// Share of images that are flipped; 0.5 by default.
    pub probability: f64,
}

impl Default for HorizontalFlip {
    fn default() -> Self {
        Self { probability: 0.5 }
    }
}

impl HorizontalFlip {
    pub(super) fn check(&self) -> Result {
        check_probability("flip", self.probability)
    }

    pub(super) fn draw(&self, random: &mut Stream) -> bool {
        random.chance(self.probability)
    }
}
