//! A tile of channels between planes, `[TILE, h * w]`, and pixels, `[h, w, TILE]`.

use super::simd::Simd;

/// Where the pixels of a tile lie in a map, from its first one on.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Height and width.
    pub size: [usize; 2],
    /// Distance between rows.
    pub row: usize,
    /// Distance between the pixels of a row.
    pub pixel: usize,
}

impl Grid {
    /// The place of every pixel.
    #[inline(always)]
    fn places(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        let Self { size: [h, w], row, pixel } = *self;
        (0..h).flat_map(move |i| (0..w).map(move |j| i * row + j * pixel))
    }
}

/// Floats in a block of the widest vectors.
const BLOCK: usize = 256;

/// Writes the `TILE` planes to the pixels of the grid.
#[inline(always)]
pub fn interleave<S: Simd>(simd: S, planes: &[f32], grid: &Grid, map: &mut [f32]) {
    to_places(simd, (planes, planes.len() / S::TILE), grid.places(), map);
}

/// Writes the first `TILE` planes, each as long as there are places, to pixels at these.
#[inline(always)]
pub fn interleave_at<S: Simd>(simd: S, planes: &[f32], places: &[usize], map: &mut [f32]) {
    to_places(simd, (planes, places.len()), places.iter().copied(), map);
}

#[inline(always)]
fn to_places<S: Simd>(
    simd: S,
    (planes, plane): (&[f32], usize),
    all: impl Iterator<Item = usize> + Clone,
    map: &mut [f32],
) {
    let mut block = [0.0; BLOCK];
    for half in [0, S::WIDTH] {
        let planes = &planes[half * plane..];
        let mut places = all.clone();
        let mut write = |block: &[f32], pixels: usize| {
            for (pixel, place) in block.chunks_exact(S::WIDTH).zip(places.by_ref().take(pixels)) {
                simd.store(&mut map[place + half..], simd.load(pixel));
            }
        };
        for first in (0..plane - plane % S::WIDTH).step_by(S::WIDTH) {
            simd.transpose((&planes[first..], plane), (&mut block, S::WIDTH), S::WIDTH);
            write(&block[..S::WIDTH * S::WIDTH], S::WIDTH);
        }
        let left = plane % S::WIDTH;
        let last = plane - left;
        if left == 0 {
            continue;
        }
        // The last vector of the last plane may end behind all that there is.
        if last + (S::WIDTH - 1) * plane + S::WIDTH <= planes.len() {
            simd.transpose((&planes[last..], plane), (&mut block, S::WIDTH), left);
        } else {
            let mut padded = [0.0; BLOCK];
            let vectors = padded.chunks_exact_mut(S::WIDTH).take(S::WIDTH);
            for (vector, plane) in vectors.zip(planes.chunks_exact(plane)) {
                vector[..left].copy_from_slice(&plane[last..]);
            }
            simd.transpose((&padded, S::WIDTH), (&mut block, S::WIDTH), left);
        }
        write(&block[..left * S::WIDTH], left);
    }
}

/// Writes the pixels of the grid to the `TILE` planes.
#[inline(always)]
pub fn separate<S: Simd>(simd: S, map: &[f32], grid: &Grid, planes: &mut [f32]) {
    from_places(simd, map, grid.places(), planes);
}

/// Writes the pixels at these places to the `TILE` planes.
#[inline(always)]
pub fn separate_at<S: Simd>(simd: S, map: &[f32], places: &[usize], planes: &mut [f32]) {
    from_places(simd, map, places.iter().copied(), planes);
}

#[inline(always)]
fn from_places<S: Simd>(
    simd: S,
    map: &[f32],
    all: impl Iterator<Item = usize> + Clone,
    planes: &mut [f32],
) {
    let plane = planes.len() / S::TILE;
    let mut block = [0.0; BLOCK];
    for half in [0, S::WIDTH] {
        let planes = &mut planes[half * plane..(half + S::WIDTH) * plane];
        let mut places = all.clone();
        let mut read = |block: &mut [f32], pixels: usize| {
            let pixels = block.chunks_exact_mut(S::WIDTH).take(pixels);
            for (pixel, place) in pixels.zip(places.by_ref()) {
                simd.store(pixel, simd.load(&map[place + half..]));
            }
        };
        for first in (0..plane - plane % S::WIDTH).step_by(S::WIDTH) {
            read(&mut block, S::WIDTH);
            simd.transpose((&block, S::WIDTH), (&mut planes[first..], plane), S::WIDTH);
        }
        let left = plane % S::WIDTH;
        if left > 0 {
            let mut turned = [0.0; BLOCK];
            read(&mut block, left);
            simd.transpose((&block, S::WIDTH), (&mut turned, S::WIDTH), S::WIDTH);
            let rows = planes.chunks_exact_mut(plane).zip(turned.chunks_exact(S::WIDTH));
            rows.for_each(|(row, turned)| row[plane - left..].copy_from_slice(&turned[..left]));
        }
    }
}
