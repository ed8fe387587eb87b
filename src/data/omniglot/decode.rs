use image::{DynamicImage, GrayImage};

use super::SIDE;

/// Height and width of the published images.
pub(in crate::data) const PUBLISHED: (u32, u32) = (105, 105);

/// Writes a page of black ink on white as bright ink on black at the small size, if it is of the published
/// one, and returns its height and width.
pub(super) fn small_and_bright(page: DynamicImage, out: &mut [u8]) -> (u32, u32) {
    let size = (page.height(), page.width());
    if size == PUBLISHED {
        write_small_and_bright(&page.into_luma8(), out);
    }
    size
}

/// Writes a page of the published size as bright ink on black at the small size.
pub(in crate::data) fn write_small_and_bright(page: &GrayImage, out: &mut [u8]) {
    area_mean(page.as_raw(), PUBLISHED.0 as usize, out, SIDE);
    out.iter_mut().for_each(|pixel| *pixel = 255 - *pixel);
}

/// Shrinks a square image to another, each pixel the mean of the area it covers.
///
/// One side is divided into `from_side * to_side` parts, of which a source pixel has `to_side` and
/// a target pixel `from_side`: every overlap is then a whole number of parts, and the sums are
/// exact. Only the last division rounds, to the nearest.
fn area_mean(from: &[u8], from_side: usize, to: &mut [u8], to_side: usize) {
    let mut squeezed = vec![0_u32; from_side * to_side];
    for (line, short) in from.chunks_exact(from_side).zip(squeezed.chunks_exact_mut(to_side)) {
        for (column, sum) in short.iter_mut().enumerate() {
            *sum = overlaps(column, from_side, to_side)
                .map(|(source, parts)| parts * u32::from(line[source]))
                .sum();
        }
    }
    let area = (from_side * from_side) as u32;
    for (row, line) in to.chunks_exact_mut(to_side).enumerate() {
        for (column, pixel) in line.iter_mut().enumerate() {
            let sum: u32 = overlaps(row, from_side, to_side)
                .map(|(source, parts)| parts * squeezed[source * to_side + column])
                .sum();
            *pixel = ((sum + area / 2) / area) as u8;
        }
    }
}

/// The source pixels that a target pixel covers along one side, and how many parts of each.
fn overlaps(target: usize, from_side: usize, to_side: usize) -> impl Iterator<Item = (usize, u32)> {
    let (start, end) = (target * from_side, (target + 1) * from_side);
    (start / to_side..end.div_ceil(to_side)).map(move |source| {
        let parts = end.min((source + 1) * to_side) - start.max(source * to_side);
        (source, parts as u32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shrunk(from: &[u8], from_side: usize, to_side: usize) -> Vec<u8> {
        let mut to = vec![0; to_side * to_side];
        area_mean(from, from_side, &mut to, to_side);
        to
    }

    #[test]
    fn a_pixel_is_the_mean_of_the_area_it_covers() {
        let from = [0, 90, 180, 90, 180, 9, 18, 27, 36];
        // Three to two: a corner counts 4, an edge 2 and the middle 1 of 9.
        let mean = |corner: u32, edges: u32, middle: u32| {
            ((4 * corner + 2 * edges + middle) as f64 / 9.0).round() as u8
        };
        let expected = [
            mean(0, 90 + 90, 180),
            mean(180, 90 + 9, 180),
            mean(18, 90 + 27, 180),
            mean(36, 9 + 27, 180),
        ];
        assert_eq!(shrunk(&from, 3, 2), expected);
    }

    #[test]
    fn an_even_image_stays_even() {
        for level in [0, 1, 127, 254, 255] {
            assert_eq!(shrunk(&[level; 105 * 105], 105, 28), [level; 28 * 28]);
        }
    }

    #[test]
    fn every_source_pixel_counts_once() {
        for source in 0..105 {
            let parts: u32 = (0..28)
                .flat_map(|target| overlaps(target, 105, 28))
                .filter(|&(index, _)| index == source)
                .map(|(_, parts)| parts)
                .sum();
            assert_eq!(parts, 28, "source pixel {source}");
        }
    }
}
