//! Random changes of training images, on their bytes.
//!
//! # Conventions
//! The meaning of each part, its defaults and the order of colour adjustments are those of torchvision's transform of the
//! same name. Pixels are those of torchvision on images of PIL, to one level of 255.
//!
//! A dataset holds images at the size that the network takes, so a crop is resized from that size and not from the
//! photograph's.

mod color;
mod crop;
mod erasing;
mod error;
mod flip;
mod presets;
mod rotation;
mod spec;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use fewshot_kernels::augment_images::Window;
use fewshot_kernels::augment_images::{Change, ChangeKind};
use serde::{Deserialize, Serialize};

pub use color::{ColorJitter, RandomGrey};
pub use crop::{PaddedCrop, ResizedCrop};
pub use erasing::RandomErasing;
pub use error::AugmentError;
pub use flip::HorizontalFlip;
pub use presets::Preset;
pub use rotation::RandomRotation;
pub use spec::AugmentSpec;

use crate::data::ImageShape;
use crate::random::{Purpose, Stream};

type Result<T = (), E = AugmentError> = std::result::Result<T, E>;

/// Part of an [`Augmentation`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AugmentStep {
    /// [`ResizedCrop`]
    ResizedCrop(ResizedCrop),
    /// [`PaddedCrop`]
    PaddedCrop(PaddedCrop),
    /// [`HorizontalFlip`]
    Flip(HorizontalFlip),
    /// [`ColorJitter`]
    Jitter(ColorJitter),
    /// [`RandomGrey`]
    Grey(RandomGrey),
    /// [`RandomRotation`]
    Rotation(RandomRotation),
    /// [`RandomErasing`]
    Erasing(RandomErasing),
}

/// Random changes of an image, one after the other.
///
/// Every random number is a function of a seed, the index of an episode, and the place of the image in the episode.
///
/// # Example
/// ```
/// use fewshot::data::{Augmentation, ImageShape, Preset};
///
/// let shape = ImageShape::new(3, 84, 84);
/// let augmentation: Augmentation = Preset::Standard.for_image(shape);
/// let image: Vec<u8> = (0..shape.values()).map(|value| value as u8).collect();
/// let (mut one, mut other) = (image.clone(), image.clone());
/// augmentation.apply(&mut one, shape, 7, [0, 3]);
/// augmentation.apply(&mut other, shape, 7, [0, 3]);
/// assert!(one == other && one != image);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Augmentation {
    /// Parts, in the order in which they change an image.
    pub steps: Vec<AugmentStep>,
}

impl AugmentStep {
    /// Checks that the numbers of the step make sense and that it can change images of this shape.
    ///
    /// # Errors
    /// For a number out of its range, and changes of colour in images that have none.
    pub fn check(&self, shape: ImageShape) -> Result {
        match self {
            Self::ResizedCrop(step) => step.check(),
            Self::PaddedCrop(step) => step.check(),
            Self::Flip(step) => step.check(),
            Self::Jitter(step) => step.check(shape),
            Self::Grey(step) => step.check(shape),
            Self::Rotation(step) => step.check(),
            Self::Erasing(step) => step.check(),
        }
    }

    /// True for probabilities, strengths and widths of zero.
    fn is_identity(&self) -> bool {
        match self {
            Self::ResizedCrop(_) => false,
            Self::PaddedCrop(step) => step.padding == 0,
            Self::Flip(step) => step.probability == 0.0,
            Self::Jitter(step) => *step == ColorJitter::default(),
            Self::Grey(step) => step.probability == 0.0,
            Self::Rotation(step) => step.degrees == 0.0,
            Self::Erasing(step) => step.probability == 0.0,
        }
    }

    /// The change of the next image; `None` if it stays as it is.
    fn draw(&self, shape: ImageShape, random: &mut Stream) -> Option<Change> {
        match self {
            Self::ResizedCrop(step) => Some(Change::Crop(step.draw(shape, random))),
            Self::PaddedCrop(step) => Some(Change::Shift(step.draw(random))),
            Self::Flip(step) => step.draw(random).then_some(Change::Flip),
            Self::Jitter(step) => Some(Change::Jitter(step.draw(random))),
            Self::Grey(step) => step.draw(random).then_some(Change::Grey),
            Self::Rotation(step) => Some(Change::Rotation(step.draw(random))),
            Self::Erasing(step) => step.draw(shape, random).map(Change::Erasing),
        }
    }

    fn kind(&self) -> ChangeKind {
        match self {
            Self::ResizedCrop(_) => ChangeKind::Crop,
            Self::PaddedCrop(_) => ChangeKind::Shift,
            Self::Flip(_) => ChangeKind::Flip,
            Self::Jitter(step) => step.kind(),
            Self::Grey(_) => ChangeKind::Grey,
            Self::Rotation(_) => ChangeKind::Rotation,
            Self::Erasing(_) => ChangeKind::Erasing,
        }
    }
}

impl Augmentation {
    /// These parts, in this order.
    pub fn new(steps: impl Into<Vec<AugmentStep>>) -> Self {
        Self { steps: steps.into() }
    }

    /// True without a part.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// True if every image stays as it is: without a part, or with parts whose probabilities, strengths and widths are
    /// zero.
    pub fn is_identity(&self) -> bool {
        self.steps.iter().all(AugmentStep::is_identity)
    }

    /// Checks every part, for images of this shape.
    ///
    /// # Errors
    /// The reasons are those of [`AugmentStep::check`].
    pub fn check(&self, shape: ImageShape) -> Result {
        self.steps.iter().try_for_each(|step| step.check(shape))
    }

    /// Changes an image in place, by the random numbers of a seed and an index.
    ///
    /// # Shapes
    /// `image`: `[c, h, w]` bytes, row by row.
    ///
    /// # Panics
    /// If `image` has another length, or the augmentation does not pass its [`check`](Self::check) for `shape`.
    pub fn apply(&self, image: &mut [u8], shape: ImageShape, seed: u64, index: [u64; 2]) {
        assert_eq!(image.len(), shape.values(), "bytes of a {shape} image");
        let mut random = Stream::new(seed, Purpose::Augmentation, index);
        for step in &self.steps {
            if let Some(change) = step.draw(shape, &mut random) {
                change.apply(image, sides(shape));
            }
        }
    }

    /// Kinds of the changes.
    pub(crate) fn kinds(&self) -> Vec<ChangeKind> {
        self.steps.iter().map(AugmentStep::kind).collect()
    }

    /// Appends the words of the changes that [`apply`](Self::apply) makes, for an accelerator to make them.
    pub(crate) fn encode(
        &self,
        shape: ImageShape,
        seed: u64,
        index: [u64; 2],
        words: &mut Vec<i32>,
    ) {
        let mut random = Stream::new(seed, Purpose::Augmentation, index);
        for step in &self.steps {
            step.kind().encode(step.draw(shape, &mut random).as_ref(), words);
        }
    }
}

/// Channels, height and width.
pub(crate) fn sides(ImageShape { channels, height, width }: ImageShape) -> [usize; 3] {
    [channels, height, width]
}

/// The interval of a probability.
fn check_probability(part: &'static str, probability: f64) -> Result {
    match (0.0..=1.0).contains(&probability) {
        true => Ok(()),
        false => Err(AugmentError::Range {
            part,
            quantity: "a probability",
            allowed: "from 0 to 1",
            value: probability,
        }),
    }
}
