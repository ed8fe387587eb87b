//! Turns by any angle.

/// Cosine and sine of an angle; positive angles turn to the left.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Rotation {
    pub cos: f64,
    pub sin: f64,
}

/// Turns an image around its middle.
pub fn rotate(Rotation { cos, sin }: Rotation, image: &mut [u8], shape: [usize; 3]) {
    let [channels, height, width] = shape;
    let middle = [width as f64 / 2.0, height as f64 / 2.0];
    let before = image.to_vec();
    for row in 0..height {
        for column in 0..width {
            let [x, y] = [column as f64 + 0.5 - middle[0], row as f64 + 0.5 - middle[1]];
            let place = [cos * x - sin * y + middle[0], sin * x + cos * y + middle[1]];
            let corners = Corners::around(place, [height, width]);
            for channel in 0..channels {
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
    fn around([x, y]: [f64; 2], [height, width]: [usize; 2]) -> Option<Self> {
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
