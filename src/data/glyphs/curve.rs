use std::ops::{Add, Mul, Sub};

/// A point of the unit square, `y` pointing down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

impl Point {
    pub(super) const fn new(x: f64, y: f64) -> Self {
        Self { x, y }
    }

    pub(super) fn coordinates(self) -> [f64; 2] {
        [self.x, self.y]
    }

    /// A quarter turn of a vector.
    pub(super) fn across(self) -> Self {
        Self::new(-self.y, self.x)
    }

    pub(super) fn dot(self, other: Self) -> f64 {
        self.x * other.x + self.y * other.y
    }

    pub(super) fn length(self) -> f64 {
        self.dot(self).sqrt()
    }
}

impl Add for Point {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::new(self.x + other.x, self.y + other.y)
    }
}

impl Sub for Point {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::new(self.x - other.x, self.y - other.y)
    }
}

impl Mul<f64> for Point {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self::new(self.x * factor, self.y * factor)
    }
}

/// Straight pieces that a stroke is drawn in.
const PIECES: usize = 16;

/// One movement of the pen: a cubic Bezier curve by its four control points.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stroke(pub(super) [Point; 4]);

impl Stroke {
    /// From one point to another, leaving the straight line by `out` near its start and by `back`
    /// near its end, in parts of its length. Equal signs make an arc, different ones an S.
    pub(super) fn bent(from: Point, to: Point, out: f64, back: f64) -> Self {
        let along = to - from;
        let across = along.across();
        let near_start = from + along * (1.0 / 3.0) + across * out;
        let near_end = from + along * (2.0 / 3.0) + across * back;
        Self([from, near_start, near_end, to])
    }

    /// A drop that starts and ends at `tip` and opens towards `bottom`, `width` times as wide as
    /// the tip is far from the bottom.
    pub(super) fn looped(tip: Point, bottom: Point, width: f64) -> Self {
        // The curve reaches three quarters of the way to its inner control points.
        let along = (bottom - tip) * (4.0 / 3.0);
        let across = along.across() * width;
        Self([tip, tip + along + across, tip + along - across, tip])
    }

    /// The point at a share of the way, from 0 to 1.
    pub(super) fn point(&self, share: f64) -> Point {
        let [a, b, c, d] = self.0;
        let rest = 1.0 - share;
        a * (rest * rest * rest)
            + b * (3.0 * rest * rest * share)
            + c * (3.0 * rest * share * share)
            + d * (share * share * share)
    }

    /// Ends of straight pieces close to the curve.
    pub(super) fn path(&self) -> [Point; PIECES + 1] {
        std::array::from_fn(|step| self.point(step as f64 / PIECES as f64))
    }

    pub(super) fn map(&self, change: impl FnMut(Point) -> Point) -> Self {
        Self(self.0.map(change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: Point = Point::new(0.0, 0.0);
    const RIGHT: Point = Point::new(1.0, 0.0);

    #[test]
    fn a_stroke_without_bends_is_straight() {
        let stroke = Stroke::bent(LEFT, RIGHT, 0.0, 0.0);
        for share in [0.0, 0.25, 0.5, 1.0] {
            assert!((stroke.point(share) - Point::new(share, 0.0)).length() < 1e-15);
        }
    }

    #[test]
    fn equal_bends_make_an_arc_and_opposite_ones_cross_the_line() {
        let arc = Stroke::bent(LEFT, RIGHT, 0.4, 0.4);
        assert!((arc.point(0.5) - Point::new(0.5, 0.3)).length() < 1e-15);
        let snake = Stroke::bent(LEFT, RIGHT, 0.4, -0.4);
        assert!(snake.point(0.25).y > 0.0 && snake.point(0.75).y < 0.0);
    }

    #[test]
    fn a_loop_comes_back_and_reaches_its_bottom() {
        let drop = Stroke::looped(LEFT, RIGHT, 0.5);
        assert_eq!(drop.point(0.0), drop.point(1.0));
        assert!((drop.point(0.5) - RIGHT).length() < 1e-15);
    }

    #[test]
    fn a_path_goes_from_start_to_end() {
        let path = Stroke::bent(LEFT, RIGHT, 0.3, 0.1).path();
        assert_eq!((path[0], path[PIECES]), (LEFT, RIGHT));
        assert!(path.windows(2).all(|pair| pair[0].x < pair[1].x));
    }
}
