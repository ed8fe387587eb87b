use super::curve::{Point, Stroke};

/// A square of pixels that strokes are drawn on with a round pen.
pub(super) struct Canvas {
    side: usize,
    /// Squared distance in pixels from each pixel's middle to the nearest piece of a stroke;
    /// right within reach of the pen, and too large beyond.
    squared: Vec<f64>,
    /// Half the width of the line in pixels.
    pen: f64,
}

impl Canvas {
    /// A blank canvas; `pen` is half the width of the line in pixels.
    pub(super) fn new(side: usize, pen: f64) -> Self {
        Self { side, squared: vec![f64::INFINITY; side * side], pen }
    }

    /// Draws a stroke, given in parts of the side.
    pub(super) fn draw(&mut self, stroke: &Stroke) {
        let side = self.side as f64;
        for [from, to] in stroke.pieces() {
            self.draw_piece(from * side, to * side);
        }
    }

    /// In plain numbers and loops: programs without optimisation, as tests are, spend their time here.
    fn draw_piece(&mut self, from: Point, to: Point) {
        let columns = self.span(from.x, to.x);
        let along = to - from;
        let squared_length = along.dot(along);
        // Of a dot, every share is 0.
        let divisor = if squared_length > 0.0 { squared_length } else { f64::INFINITY };
        for row in self.span(from.y, to.y) {
            let y = row as f64 + 0.5;
            let pixels = &mut self.squared[row * self.side..][columns.clone()];
            let mut column = 0;
            while column < pixels.len() {
                let x = (columns.start + column) as f64 + 0.5;
                let share = ((x - from.x) * along.x + (y - from.y) * along.y) / divisor;
                let share = if share < 0.0 { 0.0 } else { share };
                let share = if share > 1.0 { 1.0 } else { share };
                let across = x - (from.x + along.x * share);
                let down = y - (from.y + along.y * share);
                let squared = across * across + down * down;
                let nearest = pixels[column];
                pixels[column] = if squared < nearest { squared } else { nearest };
                column += 1;
            }
        }
    }

    /// The rows or columns that the pen can touch on its way between two places.
    fn span(&self, from: f64, to: f64) -> std::ops::Range<usize> {
        let reach = self.pen + 1.0;
        let low = (from.min(to) - reach).max(0.0) as usize;
        let high = ((from.max(to) + reach + 1.0).max(0.0) as usize).min(self.side);
        low.min(high)..high
    }

    /// Writes the ink, 255 under the line and less in the pixels that its edge crosses.
    pub(super) fn write_ink(&self, out: &mut [u8]) {
        for (pixel, squared) in out.iter_mut().zip(&self.squared) {
            let covered = (self.pen + 0.5 - squared.sqrt()).clamp(0.0, 1.0);
            *pixel = (covered * 255.0 + 0.5) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ink(stroke: Stroke, pen: f64) -> Vec<u8> {
        let mut canvas = Canvas::new(8, pen);
        canvas.draw(&stroke);
        let mut out = vec![0; 64];
        canvas.write_ink(&mut out);
        out
    }

    #[test]
    fn a_line_of_one_pixel_fills_its_row() {
        let row = 3.5 / 8.0;
        let stroke = Stroke::bent(Point::new(-0.5, row), Point::new(1.5, row), 0.0, 0.0);
        let image = ink(stroke, 0.5);
        for (at, &pixel) in image.iter().enumerate() {
            assert_eq!(pixel, u8::from(at / 8 == 3) * 255, "pixel {at}");
        }
    }

    #[test]
    fn a_line_between_two_rows_is_shared_by_them() {
        let stroke = Stroke::bent(Point::new(-0.5, 0.5), Point::new(1.5, 0.5), 0.0, 0.0);
        let image = ink(stroke, 0.5);
        assert!(image[3 * 8..5 * 8].iter().all(|&pixel| pixel == 128));
        assert!(image[..3 * 8].iter().chain(&image[5 * 8..]).all(|&pixel| pixel == 0));
    }

    #[test]
    fn a_dot_is_drawn_and_ink_beyond_the_edge_is_lost() {
        let inside = Point::new(0.5625, 0.3125);
        assert_eq!(ink(Stroke([inside; 4]), 0.5)[2 * 8 + 4], 255);
        let outside = Point::new(-3.0, 5.0);
        assert_eq!(ink(Stroke([outside; 4]), 0.5), [0; 64]);
    }
}
