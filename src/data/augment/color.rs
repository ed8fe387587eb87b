use fewshot_kernels::augment_images::{Adjustment, ChangeKind};
use serde::{Deserialize, Serialize};

use super::{AugmentError, Result, check_probability};
use crate::data::ImageShape;
use crate::random::Stream;

/// Brightness, contrast, saturation and hue change by random amounts, in a random order.
///
/// # Conventions
/// torchvision's `ColorJitter` on images of PIL: factors are drawn from `1 - x` to `1 + x`, or from 0 where `x` is above
/// 1; a hue is shifted by up to `hue` turns of the colour circle. Where a strength is 0 nothing is drawn. Bytes are
/// blended and cut off as PIL does it, and a hue is one of 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ColorJitter {
    /// Strength of the change of brightness: a blend with black.
    pub brightness: f64,
    /// Strength of the change of contrast: a blend with the mean of the grey image.
    pub contrast: f64,
    /// Strength of the change of saturation: a blend with the grey image.
    pub saturation: f64,
    /// Greatest shift of the hue, at most 0.5.
    pub hue: f64,
}

/// The image becomes grey in all three channels, with a probability.
///
/// # Conventions
/// torchvision's `RandomGrayscale` on images of PIL.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RandomGrey {
    /// Share of images that become grey; 0.1 by default.
    pub probability: f64,
}

impl Default for RandomGrey {
    fn default() -> Self {
        Self { probability: 0.1 }
    }
}

/// Adjustments by their amounts, in torchvision's order of them.
pub(super) const ADJUSTMENTS: [fn(f64) -> Adjustment; 4] = [
    |factor| Adjustment::Brightness(factor as f32),
    |factor| Adjustment::Contrast(factor as f32),
    |factor| Adjustment::Saturation(factor as f32),
    // PIL has hues of a byte, which begin again after the last.
    |turns| Adjustment::Hue((turns * 255.0) as i32 as u8),
];

impl ColorJitter {
    /// The same strength of brightness, contrast and, in images with colours, saturation.
    pub fn even(strength: f64, shape: ImageShape) -> Self {
        let saturation = if shape.channels == 3 { strength } else { 0.0 };
        Self { brightness: strength, contrast: strength, saturation, hue: 0.0 }
    }

    pub(super) fn check(&self, shape: ImageShape) -> Result {
        for (quantity, value) in [
            ("the strength of brightness", self.brightness),
            ("the strength of contrast", self.contrast),
            ("the strength of saturation", self.saturation),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(AugmentError::Range {
                    part: "jitter",
                    quantity,
                    allowed: "a number from 0 on",
                    value,
                });
            }
        }
        if !(0.0..=0.5).contains(&self.hue) {
            return Err(AugmentError::Range {
                part: "jitter",
                quantity: "the shift of hue",
                allowed: "from 0 to 0.5",
                value: self.hue,
            });
        }
        let part = match (self.saturation > 0.0, self.hue > 0.0, shape.channels) {
            (_, _, 3) => return Ok(()),
            (true, _, _) => "saturation of jitter",
            (_, true, _) => "hue of jitter",
            // The mean of a contrast is that of a grey image.
            _ if self.contrast > 0.0 && shape.channels != 1 => "contrast of jitter",
            _ => return Ok(()),
        };
        Err(AugmentError::NoColor { part, shape })
    }

    /// Intervals of the amounts, in the order of [`ADJUSTMENTS`]; `None` where nothing is drawn.
    fn intervals(&self) -> [Option<[f64; 2]>; 4] {
        let factors = [self.brightness, self.contrast, self.saturation].map(|strength| {
            (strength > 0.0).then(|| [f64::max(0.0, 1.0 - strength), 1.0 + strength])
        });
        let [brightness, contrast, saturation] = factors;
        let hue = (self.hue > 0.0).then_some([-self.hue, self.hue]);
        [brightness, contrast, saturation, hue]
    }

    pub(super) fn kind(&self) -> ChangeKind {
        let adjustments = self.intervals().into_iter().flatten().count();
        ChangeKind::Jitter { adjustments, has_contrast: self.contrast > 0.0 }
    }

    /// The adjustments in their order.
    pub(super) fn draw(&self, random: &mut Stream) -> Vec<Adjustment> {
        let order = random.permutation(4);
        let amounts = self
            .intervals()
            .map(|interval| interval.map(|[least, most]| random.between(least, most)));
        let places = order.into_iter();
        places.filter_map(|place| amounts[place].map(ADJUSTMENTS[place])).collect()
    }
}

impl RandomGrey {
    pub(super) fn check(&self, shape: ImageShape) -> Result {
        check_probability("grey", self.probability)?;
        match shape.channels {
            3 => Ok(()),
            _ => Err(AugmentError::NoColor { part: "grey", shape }),
        }
    }

    pub(super) fn draw(&self, random: &mut Stream) -> bool {
        random.chance(self.probability)
    }
}
