use std::str::FromStr;

use super::{
    AugmentError, AugmentStep, Augmentation, ColorJitter, HorizontalFlip, PaddedCrop, Preset,
    RandomErasing, RandomGrey, RandomRotation, ResizedCrop, Result,
};
use crate::data::ImageShape;

/// An augmentation as it is written, before the shape of images is known: the name of a [`Preset`], or parts separated by
/// commas, or a preset and parts that follow it.
///
/// | part | meaning | default |
/// |---|---|---|
/// | `crop=LEAST` | [`ResizedCrop`] of at least this share of the area | 0.08 |
/// | `pad=PIXELS` | [`PaddedCrop`] with this border | a tenth of the shorter side, at least 4 |
/// | `flip=P` | [`HorizontalFlip`] with this probability | 0.5 |
/// | `jitter=X` | [`ColorJitter`] of this strength in brightness, contrast and, of images with colours, saturation | 0.4 |
/// | `jitter=B:C:S:H` | the same of four strengths, the last ones 0 if they are absent | |
/// | `grey=P` | [`RandomGrey`] with this probability | 0.1 |
/// | `rotate=DEGREES` | [`RandomRotation`] by up to this angle | 15 |
/// | `erase=P` | [`RandomErasing`] with this probability | 0.5 |
///
/// # Example
/// ```
/// use fewshot::data::{AugmentSpec, ImageShape};
///
/// let spec: AugmentSpec = "flip-crop,erase=0.25".parse()?;
/// assert_eq!(spec.for_image(ImageShape::new(3, 84, 84))?.steps.len(), 3);
/// # Ok::<(), fewshot::data::AugmentError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct AugmentSpec {
    parts: Vec<Part>,
}

/// A part whose default may depend on the shape of images.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Preset(Preset),
    Pad,
    Jitter(f64),
    Step(AugmentStep),
}

impl AugmentSpec {
    /// The augmentation for images of this shape.
    ///
    /// # Errors
    /// For numbers out of their range, and for parts that change colours where images have none.
    pub fn for_image(&self, shape: ImageShape) -> Result<Augmentation> {
        let steps = self.parts.iter().flat_map(|part| match *part {
            Part::Preset(preset) => preset.steps(shape),
            Part::Pad => vec![AugmentStep::PaddedCrop(PaddedCrop::for_image(shape))],
            Part::Jitter(strength) => {
                vec![AugmentStep::Jitter(ColorJitter::even(strength, shape))]
            }
            Part::Step(step) => vec![step],
        });
        let augmentation = Augmentation::new(steps.collect::<Vec<_>>());
        augmentation.check(shape)?;
        Ok(augmentation)
    }
}

impl FromStr for AugmentSpec {
    type Err = AugmentError;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split(',').map(part).collect::<Result<Vec<_>>>()?;
        let none = Part::Preset(Preset::None);
        if parts.len() > 1 && parts.contains(&none) {
            return Err(AugmentError::Order { name: "none".to_owned(), place: "alone" });
        }
        let later = parts.iter().skip(1).find_map(|part| match part {
            Part::Preset(preset) => Some(preset.to_string()),
            _ => None,
        });
        match later {
            Some(name) => Err(AugmentError::Order { name, place: "the first in the list" }),
            None => Ok(Self { parts }),
        }
    }
}

/// Reads a part with its value, if it has one.
fn part(text: &str) -> Result<Part> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let number = |default: f64, expected| match value {
        None => Ok(default),
        Some(value) => value.parse().map_err(|_| wrong(name, value, expected)),
    };
    let probability = |default| number(default, "a probability, as 0.5");
    let step = match name {
        "crop" => {
            let default = ResizedCrop::default();
            let least = number(default.scale[0], "the least share of the area, as 0.2")?;
            AugmentStep::ResizedCrop(ResizedCrop { scale: [least, 1.0], ..default })
        }
        "pad" => match value {
            None => return Ok(Part::Pad),
            Some(value) => {
                let padding = value.parse();
                let padding = padding.map_err(|_| wrong(name, value, "whole pixels, as 8"))?;
                AugmentStep::PaddedCrop(PaddedCrop { padding })
            }
        },
        "flip" => AugmentStep::Flip(HorizontalFlip { probability: probability(0.5)? }),
        "jitter" => return jitter(value),
        "grey" => {
            let default = RandomGrey::default().probability;
            AugmentStep::Grey(RandomGrey { probability: probability(default)? })
        }
        "rotate" => {
            let degrees = number(RandomRotation::default().degrees, "degrees, as 15")?;
            AugmentStep::Rotation(RandomRotation { degrees })
        }
        "erase" => {
            let default = RandomErasing::default();
            let probability = probability(default.probability)?;
            AugmentStep::Erasing(RandomErasing { probability, ..default })
        }
        _ => match value {
            None => return name.parse().map(Part::Preset),
            Some(_) => return Err(AugmentError::Unknown { name: name.to_owned() }),
        },
    };
    Ok(Part::Step(step))
}

fn jitter(value: Option<&str>) -> Result<Part> {
    let Some(value) = value else { return Ok(Part::Jitter(0.4)) };
    let strengths = value.split(':').map(str::parse).collect::<Result<Vec<f64>, _>>();
    match strengths.as_deref() {
        Ok(&[strength]) => Ok(Part::Jitter(strength)),
        Ok(strengths @ [_, _] | strengths @ [_, _, _] | strengths @ [_, _, _, _]) => {
            let strength = |place: usize| strengths.get(place).copied().unwrap_or(0.0);
            Ok(Part::Step(AugmentStep::Jitter(ColorJitter {
                brightness: strength(0),
                contrast: strength(1),
                saturation: strength(2),
                hue: strength(3),
            })))
        }
        _ => {
            let expected = "a strength, as 0.4, or BRIGHTNESS:CONTRAST:SATURATION:HUE";
            Err(wrong("jitter", value, expected))
        }
    }
}

fn wrong(part: &str, value: &str, expected: &'static str) -> AugmentError {
    AugmentError::Value { part: part.to_owned(), value: value.to_owned(), expected }
}
