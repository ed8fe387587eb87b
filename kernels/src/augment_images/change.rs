use super::pixels::color::{self, Adjustment};
use super::pixels::rotation::{self, Rotation};
use super::pixels::window::{self, Shift, Window};

/// A change of an image, with the numbers that were drawn for it.
///
/// # Conventions
/// Pixels are bytes before and after each change, those of torchvision's transforms on images of PIL to one level of 255.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A window becomes the whole image: resized in bytes along rows, then along columns, bilinear with antialiasing.
    Crop(Window),
    /// Pixels move; what comes in is black.
    Shift(Shift),
    /// Left and right change places.
    Flip,
    /// Adjustments of colours, one after the other.
    Jitter(Vec<Adjustment>),
    /// All three channels become the grey image.
    Grey,
    /// A turn around the middle, bilinear; what comes in is black.
    Rotation(Rotation),
    /// A window becomes black.
    Erasing(Window),
}

impl Change {
    /// Changes an image in place.
    ///
    /// # Shapes
    /// `image`: `[c, h, w]` bytes, row by row; saturation, hue and grey are of three channels, contrast of one or three.
    ///
    /// # Panics
    /// If `image` has another length, or a window is not within it.
    pub fn apply(&self, image: &mut [u8], shape: [usize; 3]) {
        assert_eq!(image.len(), shape.iter().product::<usize>(), "bytes of an image {shape:?}");
        match self {
            Self::Crop(window) => window::resize(*window, image, shape),
            Self::Shift(shift) => window::shift(*shift, image, shape),
            Self::Flip => image.chunks_exact_mut(shape[2]).for_each(<[u8]>::reverse),
            Self::Jitter(adjustments) => {
                adjustments.iter().for_each(|adjustment| color::adjust(*adjustment, image, shape));
            }
            Self::Grey => color::make_grey(image),
            Self::Rotation(rotation) => rotation::rotate(*rotation, image, shape),
            Self::Erasing(window) => window::erase(*window, image, shape),
        }
    }
}
