//! A tile of channels between planes, `[TILE, h * w]`, and pixels, `[h, w, TILE]`.

use super::simd::Simd;

/// Floats in a block of the widest vectors.
const BLOCK: usize = 256;

/// Writes the first `TILE` planes, each as long as there are places, to pixels at these.
#[inline(always)]
pub fn interleave<S: Simd>(simd: S, planes: &[f32], places: &[usize], map: &mut [f32]) {
    let plane = places.len();
    let mut block = [0.0; BLOCK];
    for half in [0, S::WIDTH] {
        let planes = &planes[half * plane..];
        for first in (0..plane - plane % S::WIDTH).step_by(S::WIDTH) {
            simd.transpose((&planes[first..], plane), (&mut block, S::WIDTH), S::WIDTH);
            write(simd, &block, &places[first..first + S::WIDTH], (&mut *map, half));
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
        write(simd, &block, &places[last..], (&mut *map, half));
    }
}

/// Writes a vector of the block to every place, from the float `half` of a pixel on.
#[inline(always)]
fn write<S: Simd>(simd: S, block: &[f32], places: &[usize], (map, half): (&mut [f32], usize)) {
    for (vector, place) in block.chunks_exact(S::WIDTH).zip(places) {
        simd.store(&mut map[place + half..], simd.load(vector));
    }
}

/// Writes the pixels at these places to the `TILE` planes, each as long as there are places.
#[inline(always)]
pub fn separate<S: Simd>(simd: S, map: &[f32], places: &[usize], planes: &mut [f32]) {
    let plane = places.len();
    let mut block = [0.0; BLOCK];
    for half in [0, S::WIDTH] {
        let planes = &mut planes[half * plane..(half + S::WIDTH) * plane];
        for first in (0..plane - plane % S::WIDTH).step_by(S::WIDTH) {
            read(simd, (map, half), &places[first..first + S::WIDTH], &mut block);
            simd.transpose((&block, S::WIDTH), (&mut planes[first..], plane), S::WIDTH);
        }
        let left = plane % S::WIDTH;
        if left > 0 {
            let mut turned = [0.0; BLOCK];
            read(simd, (map, half), &places[plane - left..], &mut block);
            simd.transpose((&block, S::WIDTH), (&mut turned, S::WIDTH), S::WIDTH);
            let rows = planes.chunks_exact_mut(plane).zip(turned.chunks_exact(S::WIDTH));
            rows.for_each(|(row, turned)| row[plane - left..].copy_from_slice(&turned[..left]));
        }
    }
}

/// Reads a vector of the block from every place, from the float `half` of a pixel on.
#[inline(always)]
fn read<S: Simd>(simd: S, (map, half): (&[f32], usize), places: &[usize], block: &mut [f32]) {
    for (vector, place) in block.chunks_exact_mut(S::WIDTH).zip(places) {
        simd.store(vector, simd.load(&map[place + half..]));
    }
}
