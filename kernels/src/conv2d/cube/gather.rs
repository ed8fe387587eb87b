//! The output, and the gradient of the input.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{ConvShape, Role, multiplier};
use crate::cube::{
    Four, SIDE, TF32, TILE, TensorCores, Tiles, along_depth, array, arrays, empty, grid,
    interleaved, launch,
};

/// Pixels of a result from which on a unit takes eight at once: as many cubes are left.
const MANY_PIXELS: usize = 1 << 16;

/// The maps that are gathered from, `[n, lanes * channels, h, w]`.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Source {
    channels: usize,
    h: usize,
    w: usize,
}

/// The value under a window at `(y, x)`, its place of channel 0 at its corner, or 0 beside the map.
/// Where `transposed`, that of the window whose pixel `(row, column)` is at `(y, x)`.
#[cube]
fn gathered<F: Float, S: Float>(
    map: &Array<F>,
    source: &Source,
    base: usize,
    at: (usize, usize),
    window: (usize, usize, usize),
    #[comptime] stride: usize,
    #[comptime] padding: usize,
    #[comptime] transposed: bool,
) -> S {
    let (y, x) = at;
    let (channel, row, column) = window;
    let plane = base + channel * source.h * source.w;
    let mut value = S::new(0.0);
    if comptime!(transposed) {
        if y >= row && x >= column {
            let (down, across) = (y - row, x - column);
            let (r, q) = (down / stride, across / stride);
            let whole = r * stride == down && q * stride == across;
            if whole && r < source.h && q < source.w {
                value = S::cast_from(map[plane + r * source.w + q]);
            }
        }
    } else {
        let (r, q) = (y + row, x + column);
        let inside = r >= padding && q >= padding;
        if inside && r < source.h + padding && q < source.w + padding {
            value = S::cast_from(map[plane + (r - padding) * source.w + q - padding]);
        }
    }
    value
}

/// The weights of four rows from `row` on at place `k` of the sum, zero beyond the last row and the last place.
#[cube]
fn four_weights<F: Float, W: Float, S: Float>(
    weight: &Array<W>,
    source: &Source,
    k: usize,
    row: usize,
    rows: usize,
    #[comptime] taps: usize,
    #[comptime] transposed: bool,
) -> Vector<S, Four> {
    let lane = CUBE_POS_Z as usize;
    let depth = source.channels * taps;
    let mut weights = Vector::<S, Four>::new(S::new(0.0));
    if k < depth {
        #[unroll]
        for place in 0..4usize {
            let row = row + place;
            if row < rows {
                let at = if comptime!(transposed) {
                    ((lane * source.channels + k / taps) * rows + row) * taps + k % taps
                } else {
                    (lane * rows + row) * depth + k
                };
                // In the type of the maps, as they are multiplied.
                weights[place] = S::cast_from(F::cast_from(weight[at]));
            }
        }
    }
    weights
}

/// Adds to the sums of a cube's tile the product of weights and windows.
#[cube]
fn accumulate<F: Float, W: Float, S: Float>(
    map: &Array<F>,
    weight: &Array<W>,
    tiles: &mut Tiles<S>,
    bases: &Array<u32>,
    downs: &Array<u32>,
    acrosses: &Array<u32>,
    source: &Source,
    rows: usize,
    first_row: usize,
    #[comptime] side: usize,
    #[comptime] stride: usize,
    #[comptime] padding: usize,
    #[comptime] transposed: bool,
    #[comptime] vectors: usize,
) {
    let across = UNIT_POS as usize % SIDE;
    let down = UNIT_POS as usize / SIDE;
    let taps = comptime!(side * side);
    let depth = source.channels * taps;
    let (of_depth, four) = along_depth();
    let at_once = tiles.depth();
    for step in 0..depth.div_ceil(at_once) {
        #[unroll]
        for part in 0..comptime!(at_once / SIDE) {
            // Four rows of the weights at one place of the sum.
            let place_in_tile = comptime!(part * SIDE) + of_depth;
            let k = step * at_once + place_in_tile;
            let row = first_row + four * 4;
            let weights = four_weights::<F, W, S>(weight, source, k, row, rows, taps, transposed);
            tiles.put_left(place_in_tile, four, weights);
            // Four pixels under the windows, or eight.
            let place_in_tile = comptime!(part * SIDE) + down;
            let k = step * at_once + place_in_tile;
            let (channel, tap) = (k / taps, k % taps);
            let window = (channel, tap / side, tap % side);
            #[unroll]
            for vector in 0..vectors {
                let mut pixels = Vector::<S, Four>::new(S::new(0.0));
                if k < depth {
                    #[unroll]
                    for place in 0..4usize {
                        let pixel = comptime!(vector * 4 + place);
                        let base = bases[pixel];
                        if base != u32::MAX {
                            let at = (downs[pixel] as usize, acrosses[pixel] as usize);
                            pixels[place] = gathered::<F, S>(
                                map,
                                source,
                                base as usize,
                                at,
                                window,
                                stride,
                                padding,
                                transposed,
                            );
                        }
                    }
                }
                tiles.put_right(place_in_tile, comptime!(vector * SIDE) + across, pixels);
            }
        }
        tiles.multiply();
    }
}

/// A cube for each tile of rows, the channels of the result, and pixels, in each lane.
#[cube(launch_unchecked)]
fn gather_kernel<F: Float, W: Float, S: Float, O: Float>(
    maps: &Sequence<Array<F>>,
    weights: &Sequence<Array<W>>,
    out: &mut Array<O>,
    rows: usize,
    pixels: usize,
    out_h: usize,
    out_w: usize,
    source: &Source,
    lanes: usize,
    #[comptime] side: usize,
    #[comptime] stride: usize,
    #[comptime] padding: usize,
    #[comptime] transposed: bool,
    #[comptime] vectors: usize,
    #[comptime] cores: Option<TensorCores>,
    #[define(F, W, S, O)] _dtypes: [StorageType; 4],
) {
    let across = UNIT_POS as usize % SIDE;
    let down = UNIT_POS as usize / SIDE;
    let lane = CUBE_POS_Z as usize;
    let first_row = CUBE_POS_Y as usize * TILE;
    let plane = out_h * out_w;
    let image_length = source.channels * source.h * source.w;
    // Where the pixels of this unit are gathered from, and where their results go.
    let count = comptime!(vectors * 4);
    let mut bases = Array::<u32>::new(count);
    let mut downs = Array::<u32>::new(count);
    let mut acrosses = Array::<u32>::new(count);
    let mut places = Array::<u32>::new(count);
    #[unroll]
    for pixel in 0..count {
        let vector = CUBE_POS_X as usize * vectors + comptime!(pixel / 4);
        let at = vector * TILE + interleaved(across, comptime!(pixel % 4));
        let image = at / plane * lanes + lane;
        let (y, x) = (at % plane / out_w, at % out_w);
        bases[pixel] = u32::MAX.runtime();
        if at < pixels {
            bases[pixel] = (image * image_length) as u32;
        }
        if comptime!(transposed) {
            downs[pixel] = (y + padding) as u32;
            acrosses[pixel] = (x + padding) as u32;
        } else {
            downs[pixel] = (y * stride) as u32;
            acrosses[pixel] = (x * stride) as u32;
        }
        places[pixel] = (image * rows * plane + at % plane) as u32;
    }
    let mut tiles = Tiles::<S>::new(vectors, cores);
    let terms = comptime!(maps.len());
    #[unroll]
    for term in 0..terms {
        accumulate::<F, W, S>(
            maps.index(term),
            weights.index(term),
            &mut tiles,
            &bases,
            &downs,
            &acrosses,
            source,
            rows,
            first_row,
            side,
            stride,
            padding,
            transposed,
            vectors,
        );
    }
    let sums = tiles.sums();
    #[unroll]
    for place in 0..4usize {
        let row = first_row + down * 4 + place;
        if row < rows {
            #[unroll]
            for pixel in 0..count {
                if bases[pixel] != u32::MAX {
                    let sum = sums[comptime!(place * vectors + pixel / 4)];
                    let to = places[pixel] as usize + row * plane;
                    out[to] = O::cast_from(sum[comptime!(pixel % 4)]);
                }
            }
        }
    }
}

/// Pixels of a narrow tile.
const NARROW: usize = 16;

/// Groups of units that share the sum of a narrow tile, each of which adds up `SIDE` places of every `GROUPS * SIDE`.
const GROUPS: usize = 4;

/// Bytes of shared memory of a cube with a narrow tile.
const NARROW_MEMORY: usize =
    size_of::<f32>() * (GROUPS * SIDE * (4 * (SIDE + 1) + NARROW) + TILE * (NARROW + 1));

/// A cube for each tile of rows and `NARROW` pixels in each lane, multiplied by units: four times as many cubes as
/// [`gather_kernel`] has, which are done in a quarter of the time, where that would not fill a device.
#[cube(launch_unchecked)]
fn narrow_kernel<F: Float, W: Float, O: Float>(
    maps: &Sequence<Array<F>>,
    weights: &Sequence<Array<W>>,
    out: &mut Array<O>,
    rows: usize,
    pixels: usize,
    out_h: usize,
    out_w: usize,
    source: &Source,
    lanes: usize,
    #[comptime] side: usize,
    #[comptime] stride: usize,
    #[comptime] padding: usize,
    #[comptime] transposed: bool,
    #[define(F, W, O)] _dtypes: [StorageType; 3],
) {
    let unit = UNIT_POS as usize;
    let first_row = CUBE_POS_Y as usize * TILE;
    let plane = out_h * out_w;
    let taps = comptime!(side * side);
    let depth = source.channels * taps;
    // The pixel that this unit gathers and writes.
    let column = unit % NARROW;
    let at = CUBE_POS_X as usize * NARROW + column;
    let inside = at < pixels;
    let image = at / plane * lanes + CUBE_POS_Z as usize;
    let base = image * (source.channels * source.h * source.w);
    let (mut y, mut x) = (at % plane / out_w, at % out_w);
    if comptime!(transposed) {
        y += padding;
        x += padding;
    } else {
        y *= stride;
        x *= stride;
    }
    // The four rows and columns whose products this unit adds up.
    let group = unit / TILE;
    let (row_four, column_four) = (unit % TILE / 4, unit % 4);
    let (of_depth, four) = along_depth();
    let at_once = comptime!(GROUPS * SIDE);
    let mut left = SharedMemory::<Vector<f32, Four>>::new(comptime!(GROUPS * SIDE * (SIDE + 1)));
    let mut right = SharedMemory::<f32>::new(comptime!(GROUPS * SIDE * NARROW));
    let mut sums = Array::<Vector<f32, Four>>::new(4usize);
    #[unroll]
    for place in 0..4usize {
        sums[place] = Vector::new(0.0f32);
    }
    #[unroll]
    for term in 0..comptime!(maps.len()) {
        let (map, weight) = (maps.index(term), weights.index(term));
        for step in 0..depth.div_ceil(at_once) {
            #[unroll]
            for part in 0..GROUPS {
                let place = comptime!(part * SIDE) + of_depth;
                let (k, row) = (step * at_once + place, first_row + four * 4);
                left[place * comptime!(SIDE + 1) + four] =
                    four_weights::<F, W, f32>(weight, source, k, row, rows, taps, transposed);
                let place = comptime!(part * SIDE) + unit / NARROW;
                let k = step * at_once + place;
                let mut value = 0.0f32;
                if k < depth && inside {
                    let tap = k % taps;
                    let window = (k / taps, tap / side, tap % side);
                    value = gathered::<F, f32>(
                        map,
                        source,
                        base,
                        (y, x),
                        window,
                        stride,
                        padding,
                        transposed,
                    );
                }
                right[place * NARROW + column] = value;
            }
            sync_cube();
            #[unroll]
            for k in 0..SIDE {
                let place = group * SIDE + k;
                let of_rows = left[place * comptime!(SIDE + 1) + row_four];
                let mut of_columns = Vector::<f32, Four>::new(0.0f32);
                #[unroll]
                for element in 0..4usize {
                    of_columns[element] = right[place * NARROW + column_four * 4 + element];
                }
                #[unroll]
                for place in 0..4usize {
                    sums[place] += of_columns * Vector::new(of_rows[place]);
                }
            }
            sync_cube();
        }
    }
    // One group after the other, in rows that are one longer than the pixels.
    let pitch = comptime!(NARROW + 1);
    let mut total = SharedMemory::<f32>::new(comptime!(TILE * (NARROW + 1)));
    #[unroll]
    for of_group in 0..GROUPS {
        if group == of_group {
            #[unroll]
            for place in 0..4usize {
                let sum = sums[place];
                #[unroll]
                for element in 0..4usize {
                    let to = (row_four * 4 + place) * pitch + column_four * 4 + element;
                    let mut value = sum[element];
                    if comptime!(of_group > 0) {
                        value += total[to];
                    }
                    total[to] = value;
                }
            }
        }
        sync_cube();
    }
    #[unroll]
    for part in 0..comptime!(TILE / SIDE) {
        let row = comptime!(part * SIDE) + unit / NARROW;
        if inside && first_row + row < rows {
            let to = (image * rows + first_row + row) * plane + at % plane;
            out[to] = O::cast_from(total[row * pitch + column]);
        }
    }
}

/// Cubes that fill a device: the multiprocessors of an H100.
const FULL: usize = 132;

/// The output, of terms `[x, w]`; or, `transposed`, the gradient of the input, of terms `[dy, w]`.
pub fn product<R: CubeRuntime>(
    terms: Vec<[CubeTensor<R>; 2]>,
    shape: &ConvShape,
    dtype: DType,
    transposed: bool,
) -> CubeTensor<R> {
    let (wanted, given) = match transposed {
        false => (Role::Output, Role::Input),
        true => (Role::Input, Role::Output),
    };
    let [n, _, out_h, out_w] = shape.of(wanted);
    let [_, _, h, w] = shape.of(given);
    let (rows, channels) = if transposed { (shape.c, shape.o) } else { (shape.o, shape.c) };
    let out = empty(&terms[0][0], shape.of(wanted), dtype);
    let pixels = n * out_h * out_w;
    let vectors = if pixels * shape.lanes < MANY_PIXELS { 1 } else { 2 };
    let across = pixels.div_ceil(vectors * 4 * SIDE);
    let cubes = [across, rows.div_ceil(TILE), shape.lanes];
    let client = &out.client;
    let has_memory = client.properties().hardware.max_shared_memory_size >= NARROW_MEMORY;
    let (multiplied, cores) = multiplier(&terms[0][0], shape, vectors);
    let is_tf32 = cores.is_some() && multiplied == TF32;
    let is_narrow = has_memory && !is_tf32 && cubes.iter().product::<usize>() < FULL;
    let [of_maps, of_weights] = terms[0].each_ref().map(|of| of.dtype.into());
    let dtypes = [of_maps, of_weights, multiplied, dtype.into()];
    let [maps, weights] = [0, 1].map(|place| terms.iter().map(move |term| &term[place]));
    // SAFETY: all have the sizes of the shape; a unit reads weights within the depth and the rows, and
    // pixels within a map, and writes those of its pixels and rows that there are.
    unsafe {
        if is_narrow {
            let cubes = [pixels.div_ceil(NARROW), cubes[1], cubes[2]];
            let dtypes = [of_maps, of_weights, dtype.into()];
            launch!(narrow_kernel, grid(client, cubes, (SIDE * SIDE) as u32);;
                arrays(maps), arrays(weights), array(&out), rows, pixels, out_h, out_w,
                SourceLaunch::new(channels, h, w), shape.lanes, shape.kernel, shape.stride,
                shape.padding, transposed, dtypes);
            return out;
        }
        launch!(gather_kernel, grid(&out.client, cubes, (SIDE * SIDE) as u32);;
            arrays(maps), arrays(weights), array(&out), rows, pixels, out_h, out_w,
            SourceLaunch::new(channels, h, w), shape.lanes, shape.kernel, shape.stride,
            shape.padding, transposed, vectors, cores, dtypes);
    }
    out
}
