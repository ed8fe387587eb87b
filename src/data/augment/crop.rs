use fewshot_kernels::augment_images::{Shift, Window};
use serde::{Deserialize, Serialize};

use super::window::draw_window;
use super::{AugmentError, Result};
use crate::data::ImageShape;
use crate::random::Stream;

/// A window of random area, shape and place, resized to the whole image: bilinear with antialiasing.
///
/// # Conventions
/// torchvision's `RandomResizedCrop`: ten windows are drawn until one is within the image. If none is, the window is the
/// largest in the middle whose ratio of sides is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResizedCrop {
    /// Least and greatest share of the image's area; 0.08 to 1 by default.
    pub scale: [f64; 2],
    /// Least and greatest ratio of width to height; 3/4 to 4/3 by default.
    pub ratio: [f64; 2],
}

impl Default for ResizedCrop {
    fn default() -> Self {
        Self { scale: [0.08, 1.0], ratio: [3.0 / 4.0, 4.0 / 3.0] }
    }
}

impl ResizedCrop {
    pub(super) fn check(&self) -> Result {
        check_area("crop", self.scale)?;
        check_ratio("crop", self.ratio)
    }

    pub(super) fn draw(&self, shape: ImageShape, random: &mut Stream) -> Window {
        let sides = |ratio: f64| [1.0 / ratio, ratio];
        let most = [shape.height, shape.width];
        let window = draw_window(shape, self.scale, sides, self.ratio.map(libm::log), most, random);
        window.unwrap_or_else(|| self.in_the_middle(shape))
    }

    fn in_the_middle(&self, shape: ImageShape) -> Window {
        let (height, width) = (shape.height as f64, shape.width as f64);
        let ratio = (width / height).clamp(self.ratio[0], self.ratio[1]);
        let height = height.min((width / ratio).round_ties_even()) as usize;
        let width = width.min((shape.height as f64 * ratio).round_ties_even()) as usize;
        let [top, left] = [(shape.height - height) / 2, (shape.width - width) / 2];
        Window { top, left, height: height.max(1), width: width.max(1) }
    }
}

/// A window of the image's own size, from the image with a black border around it.
///
/// # Conventions
/// torchvision's `RandomCrop(size, padding)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaddedCrop {
    /// Width of the border in pixels.
    pub padding: usize,
}

/// Largest border: the largest side of an image.
const BORDER: usize = 65_535;

impl PaddedCrop {
    pub(super) fn check(&self) -> Result {
        match self.padding <= BORDER {
            true => Ok(()),
            false => Err(AugmentError::Range {
                part: "pad",
                quantity: "the border",
                allowed: "from 0 to 65535 pixels",
                value: self.padding as f64,
            }),
        }
    }

    pub(super) fn draw(&self, random: &mut Stream) -> Shift {
        let places = 2 * self.padding + 1;
        let [down, right] = [0; 2].map(|_| random.below(places) as i32 - self.padding as i32);
        Shift { down, right }
    }
}

/// Checks an interval of shares of an area.
pub(super) fn check_area(part: &'static str, [least, most]: [f64; 2]) -> Result {
    match 0.0 < least && least <= most && most <= 1.0 {
        true => Ok(()),
        false => Err(AugmentError::Interval {
            part,
            quantity: "a share of the area",
            allowed: "above 0 and up to 1",
            value: [least, most],
        }),
    }
}

/// Checks an interval of ratios of sides.
pub(super) fn check_ratio(part: &'static str, [least, most]: [f64; 2]) -> Result {
    match 0.0 < least && least <= most && most.is_finite() {
        true => Ok(()),
        false => Err(AugmentError::Interval {
            part,
            quantity: "the ratio of sides",
            allowed: "above 0",
            value: [least, most],
        }),
    }
}
