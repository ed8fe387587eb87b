//! Taps of a window that read inside a map, not its ring of zeros.

use std::ops::Range;

use super::layout::Map;

/// Windows along one side of a map: rows, or columns.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// Number of windows.
    pub count: usize,
    /// Distance between them.
    pub step: usize,
    /// Pixels of the ring before the map.
    ring: usize,
    /// Pixels of the map.
    pixels: usize,
}

impl Side {
    /// The windows' rows and columns, of so many each.
    pub fn rows_and_columns(map: &Map, [h, w]: [usize; 2], step: usize) -> [Self; 2] {
        [(h, map.h), (w, map.w)].map(|(count, pixels)| Self { count, step, ring: map.ring, pixels })
    }

    /// True if a window's pixel is inside the map, at `tap` from its first on.
    pub fn inside(&self, window: usize, tap: usize) -> bool {
        (self.ring..self.ring + self.pixels).contains(&(window * self.step + tap))
    }

    /// Adjacent windows that have the same of these pixels inside.
    pub fn equal_runs(&self, taps: &[usize]) -> Vec<Range<usize>> {
        let inside = |window: usize| taps.iter().map(move |&tap| self.inside(window, tap));
        let windows: Vec<_> = (0..self.count).collect();
        let parts = windows.chunk_by(|&one, &next| inside(one).eq(inside(next)));
        parts.map(|part| part[0]..part[0] + part.len()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_at_the_edge_have_fewer_taps_inside() {
        let map = Map { channels: 1, lane: 1, h: 7, w: 4, ring: 1 };
        let [rows, columns] = Side::rows_and_columns(&map, [4, 2], 2);
        assert_eq!([0, 1, 2, 3].map(|window| rows.inside(window, 0)), [false, true, true, true]);
        assert_eq!([0, 1, 2, 3].map(|window| rows.inside(window, 2)), [true, true, true, false]);
        assert_eq!([0, 1].map(|window| columns.inside(window, 2)), [true, true]);
        assert_eq!(rows.equal_runs(&[0, 1, 2]), [0..1, 1..3, 3..4]);
        assert_eq!(columns.equal_runs(&[0, 1, 2]), [0..1, 1..2]);
        assert_eq!(rows.equal_runs(&[1]), vec![0..4]);
    }
}
