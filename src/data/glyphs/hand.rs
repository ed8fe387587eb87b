use fewshot_simd::pen::Canvas;

use super::GlyphsConfig;
use super::alphabet::Alphabet;
use super::curve::{Point, Stroke};
use crate::random::{Purpose, Stream};

/// The hand of one drawer in one alphabet. Lengths are in parts of the image's side.
pub(super) struct Hand {
    seed: u64,
    drawer: u64,
    variation: f64,
    slant: f64,
    size: f64,
    /// Half the width of the line.
    pen: f64,
}

impl Hand {
    pub(super) fn new(config: &GlyphsConfig, alphabet: &Alphabet, drawer: usize) -> Self {
        let [part, number] = alphabet.key;
        let (seed, drawer, variation) = (config.seed, drawer as u64, config.variation);
        let mut stream = Stream::new(seed, Purpose::GlyphHand, [part << 32 | number, drawer]);
        Self {
            seed,
            drawer,
            variation,
            slant: stream.irwin_hall(0.12 * variation),
            size: 1.0 + stream.irwin_hall(0.08 * variation),
            pen: (1.0 + stream.irwin_hall(0.2 * variation).clamp(-0.5, 0.6)) * 0.028,
        }
    }

    /// Draws a character of the alphabet as this drawer does it.
    ///
    /// # Shapes
    /// `out`: `side * side` bytes, row by row, bright ink on black.
    pub(super) fn draw(&self, alphabet: &Alphabet, character: usize, side: usize, out: &mut [u8]) {
        let [part, number] = alphabet.key;
        let index = [part << 32 | number, (character as u64) << 32 | self.drawer];
        let mut stream = Stream::new(self.seed, Purpose::GlyphDrawing, index);
        let placement = Placement::draw(self, &mut stream);
        let mut canvas = Canvas::new(side, self.pen * side as f64);
        for stroke in &alphabet.characters[character] {
            let stroke = self.shaky(stroke, &mut stream).map(|point| placement.place(point));
            canvas.draw(&stroke.path().map(Point::coordinates));
        }
        canvas.write_ink(out);
    }

    /// The stroke a little off its place, each control point again a little off.
    fn shaky(&self, stroke: &Stroke, stream: &mut Stream) -> Stroke {
        let mut off = |deviation: f64| {
            let deviation = deviation * self.variation;
            Point::new(stream.irwin_hall(deviation), stream.irwin_hall(deviation))
        };
        let shift = off(0.022);
        stroke.map(|point| point + shift + off(0.03))
    }
}

/// Where and how a whole character is put on the page.
struct Placement {
    /// Images of the unit vectors.
    right: Point,
    down: Point,
    middle: Point,
}

impl Placement {
    fn draw(hand: &Hand, stream: &mut Stream) -> Self {
        let mut vary = |deviation: f64| stream.irwin_hall(deviation * hand.variation);
        let (wide, high) = (hand.size * (1.0 + vary(0.07)), hand.size * (1.0 + vary(0.07)));
        let slant = hand.slant + vary(0.05);
        // Sine and cosine by the tangent of half the angle: exact arithmetic on every platform.
        let half = vary(0.05);
        let scale = 1.0 / (1.0 + half * half);
        let (cosine, sine) = ((1.0 - half * half) * scale, 2.0 * half * scale);
        let turned = |x: f64, y: f64| Point::new(x * cosine - y * sine, x * sine + y * cosine);
        Self {
            right: turned(wide, 0.0),
            down: turned(-slant * high, high),
            middle: Point::new(0.5 + vary(0.035), 0.5 + vary(0.035)),
        }
    }

    fn place(&self, point: Point) -> Point {
        self.middle + self.right * (point.x - 0.5) + self.down * (point.y - 0.5)
    }
}
