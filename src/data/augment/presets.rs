use std::fmt;
use std::str::FromStr;

use super::{
    AugmentStep, Augmentation, ColorJitter, HorizontalFlip, PaddedCrop, RandomErasing, RandomGrey,
    RandomRotation, ResizedCrop,
};
use crate::data::ImageShape;

/// An augmentation by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Images as they are: for characters, which a flip makes other characters.
    None,
    /// A [`PaddedCrop`] with a border of a tenth of the shorter side, at least 4 pixels, then a [`HorizontalFlip`]: 8
    /// pixels of 84 and 4 of 32, as MetaOptNet (Lee et al. 2019) and RFS (Tian et al. 2020) train, without their change
    /// of colours.
    FlipCrop,
    /// A [`ResizedCrop`], a [`ColorJitter`] of 0.4 in brightness, contrast and saturation, and a [`HorizontalFlip`], as
    /// FEAT (Ye et al. 2020) trains at 84x84; LibFewShot (Li et al. 2021) has the same jitter and flip.
    Standard,
    /// The parts of `Standard` with a shift of hue of up to 0.1 in the jitter, then grey for a tenth of the images, a
    /// [`RandomRotation`] of up to 15 degrees, and a [`RandomErasing`] in a quarter of the images.
    Strong,
}

impl Preset {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::FlipCrop, Self::Standard, Self::Strong];

    /// The augmentation for images of this shape. In images without colours saturation, hue and grey are absent.
    pub fn for_image(self, shape: ImageShape) -> Augmentation {
        Augmentation::new(self.steps(shape))
    }

    pub(super) fn steps(self, shape: ImageShape) -> Vec<AugmentStep> {
        let flip = AugmentStep::Flip(HorizontalFlip::default());
        let crop = AugmentStep::ResizedCrop(ResizedCrop::default());
        let jitter = ColorJitter::even(0.4, shape);
        match self {
            Self::None => Vec::new(),
            Self::FlipCrop => vec![AugmentStep::PaddedCrop(PaddedCrop::for_image(shape)), flip],
            Self::Standard => vec![crop, AugmentStep::Jitter(jitter), flip],
            Self::Strong => {
                let colored = shape.channels == 3;
                let jitter = ColorJitter { hue: if colored { 0.1 } else { 0.0 }, ..jitter };
                let grey = colored.then(|| AugmentStep::Grey(RandomGrey::default()));
                let rotation = AugmentStep::Rotation(RandomRotation::default());
                let erasing =
                    AugmentStep::Erasing(RandomErasing { probability: 0.25, ..Default::default() });
                let first = [crop, AugmentStep::Jitter(jitter), flip].into_iter();
                first.chain(grey).chain([rotation, erasing]).collect()
            }
        }
    }
}

impl PaddedCrop {
    /// A border of a tenth of the shorter side, at least 4 pixels.
    pub fn for_image(shape: ImageShape) -> Self {
        Self { padding: (shape.height.min(shape.width) / 10).max(4) }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::FlipCrop => "flip-crop",
            Self::Standard => "standard",
            Self::Strong => "strong",
        })
    }
}

impl FromStr for Preset {
    type Err = super::AugmentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|preset| preset.to_string() == text);
        named.ok_or_else(|| super::AugmentError::Unknown { name: text.to_owned() })
    }
}
