use serde::{Deserialize, Serialize};

use super::{AugmentError, Result};
use crate::data::ImageShape;
use crate::random::Stream;

/// A turn around the middle by a random angle, bilinear; corners of the image leave it, and what comes in is black.
///
/// # Conventions
/// torchvision's `RandomRotation(degrees, InterpolationMode.BILINEAR)`; positive angles turn to the left.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RandomRotation {
    /// Greatest angle in degrees, to either side; 15 by default.
    pub degrees: f64,
}

impl Default for RandomRotation {
    fn default() -> Self {
        Self { degrees: 15.0 }
    }
}

impl RandomRotation {
    pub(super) fn check(&self) -> Result {
        match (0.0..=180.0).contains(&self.degrees) {
            true => Ok(()),
            false => Err(AugmentError::Range {
                part: "rotate",
                quantity: "the greatest angle",
                allowed: "from 0 to 180 degrees",
                value: self.degrees,
            }),
        }
    }

    /// An angle in degrees.
    pub(super) fn draw(&self, random: &mut Stream) -> f64 {
        random.between(-self.degrees, self.degrees)
    }
}

/// Turns an image by an angle in degrees.
pub(super) fn rotate(degrees: f64, image: &mut [u8], shape: ImageShape) {
    let ImageShape { height, width, .. } = shape;
    let angle = degrees.to_radians();
    // As PIL rounds them, so that a quarter turn is exact.
    let [cos, sin] = [libm::cos(angle), libm::sin(angle)].map(|of| (of * 1e15).round() / 1e15);
    let middle = [width as f64 / 2.0, height as f64 / 2.0];
    let before = image.to_vec();
    for row in 0..height {
        for column in 0..width {
            let [x, y] = [column as f64 + 0.5 - middle[0], row as f64 + 0.5 - middle[1]];
            let place = [cos * x - sin * y + middle[0], sin * x + cos * y + middle[1]];
            let corners = Corners::around(place, shape);
            for channel in 0..shape.channels {
                let plane = channel * height * width;
                let value = corners.as_ref().map_or(0, |at| at.mean(&before[plane..]));
                image[plane + row * width + column] = value;
            }
        }
    }
}

/// Four pixels around a place, and how far the place is from the first of them.
struct Corners {
    places: [usize; 4],
    right: f64,
    down: f64,
}

impl Corners {
    /// `None` outside of the image. Beyond the middle of its outermost pixels these are repeated.
    fn around([x, y]: [f64; 2], shape: ImageShape) -> Option<Self> {
        let ImageShape { height, width, .. } = shape;
        if !(0.0..width as f64).contains(&x) || !(0.0..height as f64).contains(&y) {
            return None;
        }
        let (x, y) = (x - 0.5, y - 0.5);
        let between = |first: f64, side: usize| {
            let first = first.floor() as isize;
            [first, first + 1].map(|at| at.clamp(0, side as isize - 1) as usize)
        };
        let (columns, rows) = (between(x, width), between(y, height));
        let place = |row: usize, column: usize| rows[row] * width + columns[column];
        let places = [place(0, 0), place(0, 1), place(1, 0), place(1, 1)];
        Some(Self { places, right: x - x.floor(), down: y - y.floor() })
    }

    fn mean(&self, plane: &[u8]) -> u8 {
        let [a, b, c, d] = self.places.map(|place| f64::from(plane[place]));
        let [above, below] = [a + (b - a) * self.right, c + (d - c) * self.right];
        // As PIL, which cuts fractions off.
        (above + (below - above) * self.down) as u8
    }
}
