//! A round pen on a page of pixels, for characters that are made of strokes. Numbers are in f64, by operations that
//! every platform rounds in one way. The pen is in this crate because development builds optimise it: each command of a
//! test draws 12 000 characters.

/// A square of pixels that a round pen draws on.
pub struct Canvas {
    side: usize,
    /// Squared distance in pixels from each pixel's middle to the nearest piece of a path; right within reach of the
    /// pen, and too large beyond.
    squared: Vec<f64>,
    /// Half the width of the line in pixels.
    pen: f64,
}

impl Canvas {
    /// A blank canvas; `pen` is half the width of the line in pixels.
    pub fn new(side: usize, pen: f64) -> Self {
        Self { side, squared: vec![f64::INFINITY; side * side], pen }
    }

    /// Draws straight pieces through the points, `[x, y]` in parts of the side.
    pub fn draw(&mut self, path: &[[f64; 2]]) {
        let side = self.side as f64;
        for piece in path.windows(2) {
            self.draw_piece([piece[0], piece[1]].map(|[x, y]| [x * side, y * side]));
        }
    }

    fn draw_piece(&mut self, [from, to]: [[f64; 2]; 2]) {
        let columns = self.span(from[0], to[0]);
        let along = [to[0] - from[0], to[1] - from[1]];
        let squared_length = along[0] * along[0] + along[1] * along[1];
        // Of a dot, every share is 0.
        let divisor = if squared_length > 0.0 { squared_length } else { f64::INFINITY };
        for row in self.span(from[1], to[1]) {
            let y = row as f64 + 0.5;
            let pixels = &mut self.squared[row * self.side..][columns.clone()];
            for (column, nearest) in columns.clone().zip(pixels) {
                let x = column as f64 + 0.5;
                let share = ((x - from[0]) * along[0] + (y - from[1]) * along[1]) / divisor;
                let share = share.clamp(0.0, 1.0);
                let across = x - (from[0] + along[0] * share);
                let down = y - (from[1] + along[1] * share);
                let squared = across * across + down * down;
                *nearest = if squared < *nearest { squared } else { *nearest };
            }
        }
    }

    /// The rows or columns whose pixels the pen inks on its way between two places.
    fn span(&self, from: f64, to: f64) -> std::ops::Range<usize> {
        // Ink ends half a pixel beyond the pen, and a pixel's middle is half a pixel from its edge.
        let low = (from.min(to) - self.pen).max(0.0) as usize;
        let high = ((from.max(to) + self.pen + 1.0).max(0.0) as usize).min(self.side);
        low.min(high)..high
    }

    /// Writes the ink, 255 under the line and less in the pixels that its edge crosses.
    ///
    /// # Shapes
    /// `out`: `side * side` bytes, row by row.
    pub fn write_ink(&self, out: &mut [u8]) {
        for (pixel, squared) in out.iter_mut().zip(&self.squared) {
            let covered = (self.pen + 0.5 - squared.sqrt()).clamp(0.0, 1.0);
            *pixel = (covered * 255.0 + 0.5) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ink(path: &[[f64; 2]], pen: f64) -> Vec<u8> {
        let mut canvas = Canvas::new(8, pen);
        canvas.draw(path);
        let mut out = vec![0; 64];
        canvas.write_ink(&mut out);
        out
    }

    #[test]
    fn a_line_of_one_pixel_fills_its_row() {
        let row = 3.5 / 8.0;
        let image = ink(&[[-0.5, row], [0.25, row], [1.5, row]], 0.5);
        for (at, &pixel) in image.iter().enumerate() {
            assert_eq!(pixel, u8::from(at / 8 == 3) * 255, "pixel {at}");
        }
    }

    #[test]
    fn a_line_between_two_rows_is_shared_by_them() {
        let image = ink(&[[-0.5, 0.5], [1.5, 0.5]], 0.5);
        assert!(image[3 * 8..5 * 8].iter().all(|&pixel| pixel == 128));
        assert!(image[..3 * 8].iter().chain(&image[5 * 8..]).all(|&pixel| pixel == 0));
    }

    #[test]
    fn a_dot_is_drawn_and_ink_beyond_the_edge_is_lost() {
        assert_eq!(ink(&[[0.5625, 0.3125]; 4], 0.5)[2 * 8 + 4], 255);
        assert_eq!(ink(&[[-3.0, 5.0]; 4], 0.5), [0; 64]);
    }
}
