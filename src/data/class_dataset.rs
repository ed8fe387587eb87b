use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::data::{DataError, PixelBlock, QuarterTurn, Result};

/// Images grouped by class: what episodes are drawn from.
///
/// Classes and the examples of a class are numbered from 0. Every image has the same shape. An
/// implementation must answer the same to the same question from any thread: an episode is a pure
/// function of its seed and of this.
///
/// # Panics
/// The methods that take a class or an example panic where the number is out of range.
pub trait ClassDataset: Send + Sync {
    /// Number of classes.
    fn classes(&self) -> usize;

    /// Name of the class in its source.
    fn class_name(&self, class: usize) -> String;

    /// Number of images of the class, at least one.
    fn examples(&self, class: usize) -> usize;

    /// Name of the file of an image, without its folders; none where an image has no file of its own.
    fn example_name(&self, _class: usize, _example: usize) -> Option<&str> {
        None
    }

    /// The shape of every image.
    fn image_shape(&self) -> ImageShape;

    /// The map from bytes to numbers when an episode is built.
    fn scaling(&self) -> &Scaling;

    /// Tells whether each class of an episode is turned by one of the four quarter turns, drawn anew for
    /// every class and episode, the same for all its images.
    ///
    /// # Source
    /// Finn, Abbeel and Levine (2017): their Omniglot, in training and in testing.
    fn draws_turns(&self) -> bool {
        false
    }

    /// Writes an image to `out`, turned by `turn` besides the turn of its class, if it has one.
    ///
    /// # Shapes
    /// `out`: `[c, h, w]` bytes, row by row, 0 to 255.
    ///
    /// # Errors
    /// If the image lies in a file that cannot be read.
    ///
    /// # Panics
    /// If `out` has another length, or an image that is not square is to be turned.
    fn write_image(
        &self,
        class: usize,
        example: usize,
        turn: QuarterTurn,
        out: &mut [u8],
    ) -> Result;

    /// The block of memory or of a file that all images lie in, one `[c, h, w]` after the other, if there is
    /// one: an accelerator is given it once, and episodes are gathered there.
    fn block(&self) -> Option<&Arc<PixelBlock>> {
        None
    }

    /// Where an image is in the [`block`](Self::block), and how it is turned from there, in all; none
    /// without a block.
    fn block_image(
        &self,
        _class: usize,
        _example: usize,
        _turn: QuarterTurn,
    ) -> Option<(usize, QuarterTurn)> {
        None
    }
}

/// Largest side of an image and number of its channels: beyond every camera, and a product of three does not overflow.
const LARGEST: usize = 65_535;

/// Channels, height and width of an image; written `1x28x28`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ImageShape {
    /// 1 for grey, 3 for red, green, blue.
    pub channels: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl ImageShape {
    /// Channels, height, width, in the order of a tensor's dimensions.
    pub const fn new(channels: usize, height: usize, width: usize) -> Self {
        Self { channels, height, width }
    }

    /// Number of values of an image: `c * h * w`.
    pub const fn values(&self) -> usize {
        self.channels * self.height * self.width
    }

    pub(super) fn check(self) -> Result {
        let sides = [self.channels, self.height, self.width];
        let reason = match (sides.iter().min(), sides.iter().max()) {
            (Some(0), _) => "hold nothing: every number must be at least 1".to_owned(),
            (_, Some(side)) if *side > LARGEST => {
                format!("are too large: no number may be above {LARGEST}")
            }
            _ => return Ok(()),
        };
        Err(DataError::Shape { shape: self, reason })
    }

    /// Tells whether a quarter turn keeps the shape.
    pub const fn is_square(&self) -> bool {
        self.height == self.width
    }
}

impl fmt::Display for ImageShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.channels, self.height, self.width)
    }
}

impl FromStr for ImageShape {
    type Err = String;

    /// Reads what is written as `3x84x84`, up to 1024x4096x4096.
    fn from_str(text: &str) -> Result<Self, String> {
        let sizes = text.split('x').map(str::parse).collect::<Result<Vec<usize>, _>>();
        match sizes.as_deref() {
            Ok(&[channels @ 1..=1024, height @ 1..=4096, width @ 1..=4096]) => {
                Ok(Self { channels, height, width })
            }
            _ => Err("write CHANNELSxHEIGHTxWIDTH, as 3x84x84, up to 1024x4096x4096".to_owned()),
        }
    }
}

/// The map from the bytes of an image to the numbers that a model sees.
///
/// `(x / 255 - mean) / std`, with one mean and one standard deviation for each channel.
///
/// # Conventions
/// torchvision's `ToTensor` followed by `Normalize(mean, std)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Mean subtracted from each channel, of pixels from 0 to 1.
    pub mean: Vec<f32>,
    /// Divisor of each channel after the subtraction; above 0.
    pub std: Vec<f32>,
}

impl Scaling {
    /// Pixels from 0 to 1: mean 0 and standard deviation 1 in every channel.
    pub fn unit(channels: usize) -> Self {
        Self { mean: vec![0.0; channels], std: vec![1.0; channels] }
    }

    /// The number that a byte of a channel becomes.
    pub fn apply(&self, channel: usize, pixel: u8) -> f32 {
        (f32::from(pixel) / 255.0 - self.mean[channel]) / self.std[channel]
    }

    /// Checks that images of this many channels can be scaled.
    ///
    /// # Errors
    /// If there is not one finite mean and one finite, positive deviation for each channel.
    pub fn check(&self, channels: usize) -> Result {
        let Self { mean, std } = self;
        let whole = mean.len() == channels
            && std.len() == channels
            && mean.iter().all(|mean| mean.is_finite())
            && std.iter().all(|&std| std.is_finite() && std > 0.0);
        match whole {
            true => Ok(()),
            false => Err(DataError::Scaling { channels, mean: mean.clone(), std: std.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_reads_channels_height_width() {
        let shape = ImageShape::new(3, 84, 80);
        assert_eq!(shape.to_string(), "3x84x80");
        assert_eq!("3x84x80".parse(), Ok(shape));
        for text in ["", "3x84", "0x8x8", "1x4097x8", "3x84x84x1", "axbxc"] {
            assert!(text.parse::<ImageShape>().is_err(), "{text}");
        }
        assert_eq!(shape.values(), 20_160);
        assert!(!shape.is_square());
    }

    #[test]
    fn scaling_is_to_tensor_then_normalize() {
        let scaling = Scaling { mean: vec![0.0, 0.5], std: vec![1.0, 0.25] };
        assert_eq!(scaling.apply(0, 51), 0.2);
        assert_eq!(scaling.apply(1, 255), 2.0);
        assert_eq!(Scaling::unit(1).apply(0, 255), 1.0);
    }

    #[test]
    fn scaling_wants_one_positive_deviation_a_channel() {
        let coloured = Scaling { mean: vec![0.485, 0.456, 0.406], std: vec![0.229, 0.224, 0.225] };
        assert!(coloured.check(3).is_ok());
        assert_eq!(
            coloured.check(1).unwrap_err().to_string(),
            "images of 1 channels need as many finite means and positive deviations, there are \
             [0.485, 0.456, 0.406] and [0.229, 0.224, 0.225]"
        );
        for std in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert!(Scaling { mean: vec![0.0], std: vec![std] }.check(1).is_err(), "{std}");
        }
        assert!(Scaling { mean: vec![f32::NAN], std: vec![1.0] }.check(1).is_err());
    }
}
