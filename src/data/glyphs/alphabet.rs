use fewshot_simd::pen::Canvas;

use super::GlyphsConfig;
use super::curve::{Point, Stroke};
use crate::random::{Purpose, Stream};

/// Characters in one style.
pub(super) struct Alphabet {
    /// Part (training, validation or test) and number: what all its random numbers are keyed by.
    pub(super) key: [u64; 2],
    pub(super) characters: Vec<Vec<Stroke>>,
}

impl Alphabet {
    pub(super) fn invent(config: &GlyphsConfig, key: [u64; 2]) -> Self {
        let mut stream = Stream::new(config.seed, Purpose::GlyphStyle, key);
        let style = Style::draw(&mut stream);
        let mut characters: Vec<Vec<Stroke>> = Vec::new();
        let mut outlines = Vec::new();
        for _ in 0..config.characters {
            let (character, outline) = style.unlike(&outlines, &mut stream);
            characters.push(character);
            outlines.push(outline);
        }
        Self { key, characters }
    }
}

/// The common style of an alphabet's characters.
struct Style {
    /// Width by height.
    aspect: f64,
    /// Chance of a stroke to be straight, and to be a loop.
    straight: f64,
    looped: f64,
    /// Distance by which other strokes leave the straight line.
    bend: f64,
    /// Chance of a bent stroke to be an S.
    snake: f64,
    /// Chance of a stroke to start on one drawn before.
    joined: f64,
    /// Chances of two and of three strokes; otherwise there are four.
    two: f64,
    three: f64,
    /// Where strokes start and end.
    anchors: Vec<Point>,
}

impl Style {
    fn draw(stream: &mut Stream) -> Self {
        let two = stream.between(0.1, 0.5);
        Self {
            aspect: stream.between(0.75, 1.2),
            straight: stream.between(0.1, 0.5),
            looped: stream.between(0.0, 0.25),
            bend: stream.between(0.25, 0.65),
            snake: stream.between(0.0, 0.4),
            joined: stream.between(0.3, 0.8),
            two,
            three: (1.0 - two) * stream.between(0.5, 0.9),
            anchors: (0..12)
                .map(|cell| {
                    let (column, row) = (f64::from(cell % 3), f64::from(cell / 3));
                    let x = (column + 0.5 + stream.between(-0.35, 0.35)) / 3.0;
                    let y = (row + 0.5 + stream.between(-0.35, 0.35)) / 4.0;
                    Point::new(x, y)
                })
                .collect(),
        }
    }

    /// A character that cannot be taken for one of those before it: the first that differs enough,
    /// or else the one that differs most of many.
    fn unlike(&self, others: &[Outline], stream: &mut Stream) -> (Vec<Stroke>, Outline) {
        const ALIKE: f64 = 0.72;
        let mut best = None;
        let mut least = f64::INFINITY;
        for _ in 0..40 {
            let character = self.character(stream);
            let outline = Outline::new(&character);
            let likeness = others.iter().map(|other| outline.likeness(other)).fold(0.0, f64::max);
            if likeness < least {
                least = likeness;
                best = Some((character, outline));
            }
            if least < ALIKE {
                break;
            }
        }
        best.expect("a likeness is finite, so the first try is better than none")
    }

    fn character(&self, stream: &mut Stream) -> Vec<Stroke> {
        let draw = stream.unit();
        let count = 2 + usize::from(draw >= self.two) + usize::from(draw >= self.two + self.three);
        let mut strokes = Vec::new();
        for _ in 0..count {
            let stroke = self.stroke(&strokes, stream);
            strokes.push(stroke);
        }
        fitted(&strokes, self.aspect)
    }

    fn stroke(&self, before: &[Stroke], stream: &mut Stream) -> Stroke {
        let from = if !before.is_empty() && stream.chance(self.joined) {
            before[stream.below(before.len())].point(stream.below(3) as f64 / 2.0)
        } else {
            self.anchor(stream)
        };
        let to = self.anchor_away_from(from, stream);
        if stream.chance(self.looped) {
            return Stroke::looped(from, to, stream.between(0.35, 0.7));
        }
        if stream.chance(self.straight) {
            return Stroke::bent(from, to, 0.0, 0.0);
        }
        let side = if stream.chance(0.5) { self.bend } else { -self.bend };
        let out = side * stream.between(0.6, 1.4);
        let back = side * stream.between(0.6, 1.4);
        if stream.chance(self.snake) {
            return Stroke::bent(from, to, out * 1.3, -back * 1.3);
        }
        Stroke::bent(from, to, out, back)
    }

    fn anchor(&self, stream: &mut Stream) -> Point {
        self.anchors[stream.below(self.anchors.len())]
    }

    /// An anchor that makes a stroke long enough to be seen.
    fn anchor_away_from(&self, from: Point, stream: &mut Stream) -> Point {
        let far: Vec<Point> = self
            .anchors
            .iter()
            .copied()
            .filter(|&anchor| (anchor - from).length() > 0.35)
            .collect();
        far[stream.below(far.len())]
    }
}

/// The strokes moved and stretched to the middle of the unit square: the larger side of their box
/// is 0.66 and a narrow character stays narrow.
fn fitted(strokes: &[Stroke], aspect: f64) -> Vec<Stroke> {
    let points: Vec<Point> = strokes.iter().flat_map(|stroke| stroke.path()).collect();
    let bounds = |along: fn(&Point) -> f64| {
        let values = points.iter().map(along);
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(f64::NEG_INFINITY, f64::max);
        (low, high - low)
    };
    let ((left, width), (top, height)) = (bounds(|point| point.x), bounds(|point| point.y));
    let larger = (width * aspect).max(height);
    let (by_x, by_y) = (0.66 * aspect / larger, 0.66 / larger);
    let place = |point: Point| {
        let x = 0.5 + (point.x - left - width / 2.0) * by_x;
        let y = 0.5 + (point.y - top - height / 2.0) * by_y;
        Point::new(x, y)
    };
    strokes.iter().map(|stroke| stroke.map(place)).collect()
}

/// A character drawn small with a broad pen, to compare it with others.
struct Outline {
    ink: [f64; Self::SIDE * Self::SIDE],
    length: f64,
}

impl Outline {
    const SIDE: usize = 12;

    fn new(character: &[Stroke]) -> Self {
        let mut canvas = Canvas::new(Self::SIDE, 0.9);
        character.iter().for_each(|stroke| canvas.draw(&stroke.path().map(Point::coordinates)));
        let mut pixels = [0; Self::SIDE * Self::SIDE];
        canvas.write_ink(&mut pixels);
        let ink = pixels.map(f64::from);
        let length = ink.iter().map(|ink| ink * ink).sum::<f64>().sqrt();
        Self { ink, length }
    }

    /// The cosine of the angle between the two images: 1 for equal ones.
    fn likeness(&self, other: &Self) -> f64 {
        let product: f64 = self.ink.iter().zip(&other.ink).map(|(a, b)| a * b).sum();
        product / (self.length * other.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alphabet() -> Alphabet {
        Alphabet::invent(&GlyphsConfig::default(), [2, 0])
    }

    #[test]
    fn characters_have_two_to_four_strokes_in_the_middle() {
        for character in alphabet().characters {
            assert!((2..=4).contains(&character.len()));
            let points = character.iter().flat_map(|stroke| stroke.path());
            for point in points {
                assert!(
                    (0.1..0.9).contains(&point.x) && (0.1..0.9).contains(&point.y),
                    "{point:?}"
                );
            }
        }
    }

    #[test]
    fn characters_of_an_alphabet_differ() {
        let outlines: Vec<_> =
            alphabet().characters.iter().map(|strokes| Outline::new(strokes)).collect();
        for (number, outline) in outlines.iter().enumerate() {
            assert!((outline.likeness(outline) - 1.0).abs() < 1e-12);
            for other in &outlines[..number] {
                assert!(outline.likeness(other) < 0.85);
            }
        }
    }
}
