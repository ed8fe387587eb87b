//! The windows of a convolution as a matrix.

use std::ops::Range;

/// Windows on the planes of an image, as a matrix: a row for each channel and pixel of a window, a column for each window.
#[derive(Clone, Copy, Debug)]
pub struct Windows<'a> {
    /// `[channels, h, w]`.
    pub x: &'a [f32],
    /// Height and width.
    pub size: [usize; 2],
    /// Side of a window.
    pub window: usize,
    /// Distance of windows.
    pub stride: usize,
    /// Zeros above and to the left of the planes.
    pub before: [usize; 2],
    /// Windows below each other, and side by side.
    pub out: [usize; 2],
}

impl Windows<'_> {
    /// Rows and columns of the matrix.
    pub fn shape(&self) -> [usize; 2] {
        let channels = self.x.len() / (self.size[0] * self.size[1]);
        [channels * self.window * self.window, self.out[0] * self.out[1]]
    }

    /// Writes a row from the column `first` on, zeros where windows leave the plane.
    pub fn write_row(&self, row: usize, first: usize, mut to: &mut [f32]) {
        let Self { size: [h, w], window, stride, before, out: [_, columns], .. } = *self;
        let (channel, i, j) = (row / (window * window), row / window % window, row % window);
        let plane = &self.x[channel * h * w..][..h * w];
        let inside = self.inside(j);
        let mut at = first;
        while !to.is_empty() {
            let (y, from) = (at / columns, at % columns);
            let (line, rest) = to.split_at_mut(to.len().min(columns - from));
            at += line.len();
            let pixels = inside.start.max(from)..inside.end.min(from + line.len());
            match (y * stride + i).checked_sub(before[0]) {
                Some(y) if y < h && !pixels.is_empty() => {
                    let (zeros, behind) = line.split_at_mut(pixels.start - from);
                    let (values, end) = behind.split_at_mut(pixels.len());
                    zeros.fill(0.0);
                    end.fill(0.0);
                    let start = y * w + pixels.start * stride + j - before[1];
                    copy_every(stride, &plane[start..], values);
                }
                _ => line.fill(0.0),
            }
            to = rest;
        }
    }

    /// Windows side by side whose column `j` is in the plane.
    fn inside(&self, j: usize) -> Range<usize> {
        let (left, w) = (self.before[1], self.size[1]);
        let start = left.saturating_sub(j).div_ceil(self.stride);
        let end = (w + left).saturating_sub(j).div_ceil(self.stride);
        start..end.clamp(start, self.out[1].max(start))
    }
}

/// Copies the floats that are so far apart, as many as `to` has.
fn copy_every(stride: usize, from: &[f32], to: &mut [f32]) {
    match stride {
        1 => to.copy_from_slice(&from[..to.len()]),
        // Pairs are read by whole vectors; the last float may be without another behind it.
        2 => {
            let (pairs, _) = from.as_chunks::<2>();
            let count = pairs.len().min(to.len());
            let (paired, last) = to.split_at_mut(count);
            paired.iter_mut().zip(pairs).for_each(|(to, pair)| *to = pair[0]);
            last.iter_mut().for_each(|to| *to = from[2 * count]);
        }
        _ => to.iter_mut().zip(from.iter().step_by(stride)).for_each(|(to, from)| *to = *from),
    }
}

#[cfg(test)]
mod tests {
    use super::Windows;
    use crate::integers;

    #[test]
    fn rows_are_those_of_the_definition() {
        for (size, window, stride, before) in [
            ([5, 7], 3, 2, [0, 1]),
            ([5, 7], 3, 1, [1, 1]),
            ([6, 4], 5, 2, [4, 4]),
            ([4, 9], 1, 2, [0, 0]),
            ([2, 2], 3, 1, [2, 2]),
        ] {
            let ([h, w], [top, left]) = (size, before);
            let out = [h + top, w + left].map(|side| (side + window / 2 - window) / stride + 1);
            let x = integers(2 * h * w, 1);
            let windows = Windows { x: &x, size, window, stride, before, out };
            let [rows, columns] = windows.shape();
            assert_eq!([rows, columns], [2 * window * window, out[0] * out[1]]);
            for (row, first) in (0..rows).flat_map(|row| (0..columns).map(move |at| (row, at))) {
                let (channel, i, j) =
                    (row / (window * window), row / window % window, row % window);
                let expected = (first..columns).map(|at| {
                    let y = (at / out[1] * stride + i).wrapping_sub(top);
                    let x_at = (at % out[1] * stride + j).wrapping_sub(left);
                    if y < h && x_at < w { x[(channel * h + y) * w + x_at] } else { 0.0 }
                });
                let mut values = vec![f32::NAN; columns - first];
                windows.write_row(row, first, &mut values);
                assert_eq!(values, expected.collect::<Vec<_>>(), "{windows:?} {row} {first}");
            }
        }
    }
}
