use serde::{Deserialize, Serialize};

use super::hue::shift_hue;
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

/// One of the adjustments of [`ColorJitter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Adjustment {
    Brightness,
    Contrast,
    Saturation,
    Hue,
}

impl Adjustment {
    /// All, in torchvision's order of them.
    pub(super) const ALL: [Self; 4] =
        [Self::Brightness, Self::Contrast, Self::Saturation, Self::Hue];
}

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

    /// The adjustments in their order, each with its factor, or the shift of the hue.
    pub(super) fn draw(&self, random: &mut Stream) -> Vec<(Adjustment, f64)> {
        let order = random.permutation(4);
        let factors = Adjustment::ALL.map(|adjustment| {
            let (strength, middle) = match adjustment {
                Adjustment::Brightness => (self.brightness, 1.0),
                Adjustment::Contrast => (self.contrast, 1.0),
                Adjustment::Saturation => (self.saturation, 1.0),
                Adjustment::Hue => (self.hue, 0.0),
            };
            let least = match adjustment {
                Adjustment::Hue => -strength,
                _ => f64::max(0.0, middle - strength),
            };
            (strength > 0.0).then(|| random.between(least, middle + strength))
        });
        let places = order.into_iter();
        places.filter_map(|place| Some((Adjustment::ALL[place], factors[place]?))).collect()
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

impl Adjustment {
    pub(super) fn apply(self, factor: f64, image: &mut [u8], shape: ImageShape) {
        match self {
            Self::Brightness => blend_with(0, factor as f32, image),
            Self::Contrast => blend_with(mean_of_grey(image, shape), factor as f32, image),
            Self::Saturation => blend_with_grey(factor as f32, image),
            Self::Hue => shift_hue(factor, image),
        }
    }
}

pub(super) fn make_grey(image: &mut [u8]) {
    let [reds, greens, blues] = channels(image);
    for ((red, green), blue) in reds.iter_mut().zip(greens).zip(blues) {
        let grey = grey_of(*red, *green, *blue);
        (*red, *green, *blue) = (grey, grey, grey);
    }
}

/// Planes of red, green and blue.
pub(super) fn channels(image: &mut [u8]) -> [&mut [u8]; 3] {
    let plane = image.len() / 3;
    let (red, others) = image.split_at_mut(plane);
    let (green, blue) = others.split_at_mut(plane);
    [red, green, blue]
}

/// Luma of ITU-R BT.601 in sixteen bits of fraction, to the nearest.
fn grey_of(red: u8, green: u8, blue: u8) -> u8 {
    const WEIGHTS: [u32; 3] = [19_595, 38_470, 7_471];
    let [red, green, blue] = [red, green, blue].map(u32::from);
    ((WEIGHTS[0] * red + WEIGHTS[1] * green + WEIGHTS[2] * blue + (1 << 15)) >> 16) as u8
}

/// `from + factor * (to - from)`, without its fraction, within a byte.
fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let (from, to) = (f32::from(from), f32::from(to));
    (from + factor * (to - from)) as u8
}

/// Blends every byte with one value.
fn blend_with(value: u8, factor: f32, image: &mut [u8]) {
    let table: [u8; 256] = std::array::from_fn(|byte| blend(value, byte as u8, factor));
    image.iter_mut().for_each(|byte| *byte = table[usize::from(*byte)]);
}

fn blend_with_grey(factor: f32, image: &mut [u8]) {
    let [reds, greens, blues] = channels(image);
    for ((red, green), blue) in reds.iter_mut().zip(greens).zip(blues) {
        let grey = grey_of(*red, *green, *blue);
        *red = blend(grey, *red, factor);
        *green = blend(grey, *green, factor);
        *blue = blend(grey, *blue, factor);
    }
}

/// Mean of the grey image, to the nearest.
fn mean_of_grey(image: &mut [u8], shape: ImageShape) -> u8 {
    let pixels = shape.height * shape.width;
    let sum: u64 = match shape.channels {
        3 => {
            let [reds, greens, blues] = channels(image);
            let planes = reds.iter().zip(&*greens).zip(&*blues);
            planes.map(|((&red, &green), &blue)| u64::from(grey_of(red, green, blue))).sum()
        }
        _ => image.iter().map(|&byte| u64::from(byte)).sum(),
    };
    (sum as f64 / pixels as f64 + 0.5) as u8
}
