use fewshot_kernels::augment_images::Window;
use serde::{Deserialize, Serialize};

use super::crop::{check_area, check_ratio};
use super::window::draw_window;
use super::{Result, check_probability};
use crate::data::ImageShape;
use crate::random::Stream;

/// A window of random area, shape and place becomes black, with a probability.
///
/// # Conventions
/// torchvision's `RandomErasing` with `value=0`, on bytes: before a network's own scaling, and not after it. An image in
/// which ten windows in a row do not fit stays as it is.
///
/// # Source
/// Zhong et al., "Random Erasing Data Augmentation", AAAI 2020.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RandomErasing {
    /// Share of images with such a window; 0.5 by default.
    pub probability: f64,
    /// Least and greatest share of the image's area; 0.02 to 0.33 by default.
    pub scale: [f64; 2],
    /// Least and greatest ratio of height to width; 0.3 to 3.3 by default.
    pub ratio: [f64; 2],
}

impl Default for RandomErasing {
    fn default() -> Self {
        Self { probability: 0.5, scale: [0.02, 0.33], ratio: [0.3, 3.3] }
    }
}

impl RandomErasing {
    pub(super) fn check(&self) -> Result {
        check_probability("erase", self.probability)?;
        check_area("erase", self.scale)?;
        check_ratio("erase", self.ratio)
    }

    pub(super) fn draw(&self, shape: ImageShape, random: &mut Stream) -> Option<Window> {
        if !random.chance(self.probability) {
            return None;
        }
        let sides = |ratio: f64| [ratio, 1.0 / ratio];
        // Shorter than the image on both sides.
        let most = [shape.height - 1, shape.width - 1];
        draw_window(shape, self.scale, sides, self.ratio.map(libm::log), most, random)
    }
}
