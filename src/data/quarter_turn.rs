use std::fmt;

use serde::{Deserialize, Serialize};

/// A rotation of an image by a multiple of 90 degrees.
///
/// # Conventions
/// Counter-clockwise, as PIL's `Image.rotate(degrees)` and `numpy.rot90(image, k)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum QuarterTurn {
    /// The image as it is.
    #[default]
    R0,
    /// A quarter turn to the left.
    R90,
    /// Upside down.
    R180,
    /// A quarter turn to the right.
    R270,
}

impl QuarterTurn {
    /// The four turns, in the order of their angle.
    pub const ALL: [Self; 4] = [Self::R0, Self::R90, Self::R180, Self::R270];

    /// The angle in degrees: 0, 90, 180 or 270.
    pub const fn degrees(self) -> u16 {
        self as u16 * 90
    }

    /// The turn of this many degrees, if it is one of the four.
    pub fn from_degrees(degrees: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|turn| turn.degrees() == degrees)
    }

    /// This turn followed by another.
    pub const fn then(self, next: Self) -> Self {
        Self::ALL[(self as usize + next as usize) % 4]
    }

    /// Writes one square channel, turned.
    ///
    /// # Shapes
    /// `plane` and `out`: `side * side` bytes, row by row.
    pub(super) fn write_plane(self, plane: &[u8], side: usize, out: &mut [u8]) {
        if self == Self::R0 {
            return out.copy_from_slice(plane);
        }
        let last = side - 1;
        for (row, line) in out.chunks_exact_mut(side).enumerate() {
            for (column, pixel) in line.iter_mut().enumerate() {
                let (from_row, from_column) = match self {
                    Self::R0 => (row, column),
                    Self::R90 => (column, last - row),
                    Self::R180 => (last - row, last - column),
                    Self::R270 => (last - column, row),
                };
                *pixel = plane[from_row * side + from_column];
            }
        }
    }
}

/// Writes the turn like the names of Omniglot's published splits: `rot090`.
impl fmt::Display for QuarterTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rot{:03}", self.degrees())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANE: [u8; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

    fn turned(turn: QuarterTurn, plane: &[u8; 9]) -> [u8; 9] {
        let mut out = [0; 9];
        turn.write_plane(plane, 3, &mut out);
        out
    }

    #[test]
    fn turns_are_those_of_numpy_rot90() {
        assert_eq!(turned(QuarterTurn::R0, &PLANE), PLANE);
        assert_eq!(turned(QuarterTurn::R90, &PLANE), [3, 6, 9, 2, 5, 8, 1, 4, 7]);
        assert_eq!(turned(QuarterTurn::R180, &PLANE), [9, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(turned(QuarterTurn::R270, &PLANE), [7, 4, 1, 8, 5, 2, 9, 6, 3]);
    }

    #[test]
    fn four_quarter_turns_are_the_identity() {
        for turn in QuarterTurn::ALL {
            let there_and_on = (0..4).fold(PLANE, |plane, _| turned(turn, &plane));
            assert_eq!(there_and_on, PLANE, "{turn}");
        }
    }

    #[test]
    fn turning_twice_is_turning_by_the_composed_turn() {
        for first in QuarterTurn::ALL {
            for next in QuarterTurn::ALL {
                let twice = turned(next, &turned(first, &PLANE));
                assert_eq!(twice, turned(first.then(next), &PLANE), "{first} then {next}");
            }
        }
    }

    #[test]
    fn only_the_four_angles_are_turns() {
        assert_eq!(QuarterTurn::from_degrees(270), Some(QuarterTurn::R270));
        assert_eq!(QuarterTurn::from_degrees(45), None);
        assert_eq!(QuarterTurn::from_degrees(360), None);
    }
}
