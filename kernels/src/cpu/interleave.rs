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
    to_places(simd, planes, grid.places(), map);
}

/// Writes the `TILE` planes to pixels at these places.
#[inline(always)]
pub fn interleave_at<S: Simd>(simd: S, planes: &[f32], places: &[usize], map: &mut [f32]) {
    to_places(simd, planes, places.iter().copied(), map);
}

#[inline(always)]
fn to_places<S: Simd>(
    simd: S,
    planes: &[f32],
    all: impl Iterator<Item = usize> + Clone,
    map: &mut [f32],
) {
    let plane = planes.len() / S::TILE;
    let mut block = [0.0; BLOCK];
    for half in [0, S::WIDTH] {
        let planes = &planes[half * plane..(half + S::WIDTH) * plane];
        let mut places = all.clone();
        for first in (0..plane - plane % S::WIDTH).step_by(S::WIDTH) {
            simd.transpose((&planes[first..], plane), (&mut block, S::WIDTH));
            for (pixel, place) in block.chunks_exact(S::WIDTH).take(S::WIDTH).zip(&mut places) {
                simd.store(&mut map[place + half..], simd.load(pixel));
            }
        }
        for (pixel, place) in (plane - plane % S::WIDTH..plane).zip(places) {
            for c in 0..S::WIDTH {
                map[place + half + c] = planes[c * plane + pixel];
            }
        }
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
        for first in (0..plane - plane % S::WIDTH).step_by(S::WIDTH) {
            let pixels = block.chunks_exact_mut(S::WIDTH).take(S::WIDTH);
            for (pixel, place) in pixels.zip(&mut places) {
                simd.store(pixel, simd.load(&map[place + half..]));
            }
            simd.transpose((&block, S::WIDTH), (&mut planes[first..], plane));
        }
        for (pixel, place) in (plane - plane % S::WIDTH..plane).zip(places) {
            for c in 0..S::WIDTH {
                planes[c * plane + pixel] = map[place + half + c];
            }
        }
    }
}
