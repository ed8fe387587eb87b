//! The gradient of the weight: a sum over all pixels, split among cubes.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{ConvShape, Role, multiplier};
use crate::conv2d::weight_parts;
use crate::cube::{
    DEPTH_OF_CORES, Four, SIDE, TILE, TensorCores, Tiles, along_depth, array, arrays, empty, grid,
    interleaved, launch, row_of_cubes,
};

/// Sizes of one of some lanes.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Sizes {
    rows: usize,
    channels: usize,
    h: usize,
    w: usize,
    out_h: usize,
    out_w: usize,
    lanes: usize,
}

/// Adds to the sums of a cube's tile the products of gradients and of pixels under windows, over the
/// pixels of the gradient from `from` to `to`.
#[cube]
fn accumulate<F: Float, S: Float>(
    dy: &Array<F>,
    map: &Array<F>,
    tiles: &mut Tiles<S>,
    sizes: &Sizes,
    lane: usize,
    range: (usize, usize),
    first: (usize, usize),
    #[comptime] side: usize,
    #[comptime] stride: usize,
    #[comptime] padding: usize,
) {
    let (of_depth, four) = along_depth();
    let taps = comptime!(side * side);
    let (from, to) = range;
    let (first_row, first_column) = first;
    let plane = sizes.out_h * sizes.out_w;
    let source = sizes.h * sizes.w;
    let at_once = tiles.depth();
    for step in 0..(to - from).div_ceil(at_once) {
        #[unroll]
        for part in 0..comptime!(at_once / SIDE) {
            let place_in_tile = comptime!(part * SIDE) + of_depth;
            let pixel = from + step * at_once + place_in_tile;
            let mut gradients = Vector::<S, Four>::new(S::new(0.0));
            let mut pixels = Vector::<S, Four>::new(S::new(0.0));
            if pixel < to {
                let image = pixel / plane * sizes.lanes + lane;
                let place = pixel % plane;
                let y = place / sizes.out_w * stride;
                let x = place % sizes.out_w * stride;
                #[unroll]
                for one in 0..4usize {
                    let row = first_row + four * 4 + one;
                    if row < sizes.rows {
                        let at = (image * sizes.rows + row) * plane + place;
                        gradients[one] = S::cast_from(dy[at]);
                    }
                }
                #[unroll]
                for one in 0..4usize {
                    let column = first_column + interleaved(four, one);
                    let (channel, tap) = (column / taps, column % taps);
                    let (r, q) = (y + tap / side, x + tap % side);
                    let inside = channel < sizes.channels && r >= padding && q >= padding;
                    if inside && r < sizes.h + padding && q < sizes.w + padding {
                        let at = (image * sizes.channels + channel) * source;
                        let at = at + (r - padding) * sizes.w + q - padding;
                        pixels[one] = S::cast_from(map[at]);
                    }
                }
            }
            tiles.put_left(place_in_tile, four, gradients);
            tiles.put_right(place_in_tile, four, pixels);
        }
        tiles.multiply();
    }
}

/// A cube for each tile of rows, the channels of the output, and columns, an input channel's tap each,
/// in each part of the pixels in each lane.
#[cube(launch_unchecked)]
fn weight_kernel<F: Float, S: Float, O: Float>(
    dys: &Sequence<Array<F>>,
    maps: &Sequence<Array<F>>,
    parts: &mut Array<O>,
    sizes: &Sizes,
    pixels: usize,
    chunk: usize,
    #[comptime] side: usize,
    #[comptime] stride: usize,
    #[comptime] padding: usize,
    #[comptime] cores: Option<TensorCores>,
    #[define(F, S, O)] _dtypes: [StorageType; 3],
) {
    let across = UNIT_POS as usize % SIDE;
    let down = UNIT_POS as usize / SIDE;
    let layer = CUBE_POS_Z as usize;
    let (part, lane) = (layer / sizes.lanes, layer % sizes.lanes);
    let from = part * chunk;
    let range = (from, min(from + chunk, pixels));
    let first_row = CUBE_POS_Y as usize * TILE;
    let first_column = CUBE_POS_X as usize * TILE;
    let first = (first_row, first_column);
    let mut tiles = Tiles::<S>::new(1usize, cores);
    let terms = comptime!(maps.len());
    #[unroll]
    for term in 0..terms {
        let (dy, map) = (dys.index(term), maps.index(term));
        accumulate::<F, S>(dy, map, &mut tiles, sizes, lane, range, first, side, stride, padding);
    }
    let sums = tiles.sums();
    let (rows, depth) = (sizes.rows, sizes.channels * comptime!(side * side));
    #[unroll]
    for one in 0..4usize {
        let row = first_row + down * 4 + one;
        #[unroll]
        for other in 0..4usize {
            let column = first_column + interleaved(across, other);
            if row < rows && column < depth {
                let sum = sums[one];
                parts[(layer * rows + row) * depth + column] = O::cast_from(sum[other]);
            }
        }
    }
}

/// Elements of a cube, and units that share the parts of each.
const ELEMENTS: usize = 32;
const SHARES: usize = 8;

/// Adds up the parts of each element.
#[cube(launch_unchecked)]
fn total_kernel<O: Float>(
    parts: &Array<f32>,
    total: &mut Array<O>,
    length: usize,
    count: usize,
    #[define(O)] _dtype: StorageType,
) {
    let unit = UNIT_POS as usize;
    let (place, share) = (unit % ELEMENTS, unit / ELEMENTS);
    let at = CUBE_POS * ELEMENTS + place;
    let mut shared = SharedMemory::<f32>::new(comptime!(ELEMENTS * SHARES));
    let mut sum = 0.0f32;
    if at < length {
        let mut part = share;
        while part < count {
            sum += parts[part * length + at];
            part += SHARES;
        }
    }
    shared[unit] = sum;
    sync_cube();
    if share == 0 && at < length {
        #[unroll]
        for other in 1..SHARES {
            sum += shared[comptime!(other * ELEMENTS) + place];
        }
        total[at] = O::cast_from(sum);
    }
}

/// The gradient of the weight, of terms `[dy, x]`.
pub fn product<R: CubeRuntime>(
    terms: Vec<[CubeTensor<R>; 2]>,
    shape: &ConvShape,
    dtype: DType,
) -> CubeTensor<R> {
    let [n, _, out_h, out_w] = shape.of(Role::Output);
    let (rows, depth) = (shape.o, shape.c * shape.kernel * shape.kernel);
    let pixels = n * out_h * out_w;
    let tiles = [depth, rows].map(|side| side.div_ceil(TILE));
    let parts = weight_parts(rows, depth, pixels, shape.lanes);
    // Whole steps, of units and of tensor cores.
    let chunk = pixels.div_ceil(parts).next_multiple_of(DEPTH_OF_CORES);
    let parts = pixels.div_ceil(chunk);
    let length: usize = shape.of(Role::Weight).iter().product();
    let out = match parts {
        1 => empty(&terms[0][0], shape.of(Role::Weight), dtype),
        _ => empty(&terms[0][0], [parts * length], DType::F32),
    };
    let cubes = [tiles[0], tiles[1], parts * shape.lanes];
    let ConvShape { c, h, w, lanes, .. } = *shape;
    let sizes = SizesLaunch::new(rows, c, h, w, out_h, out_w, lanes);
    let (multiplied, cores) = multiplier(&terms[0][0], shape, 1);
    let dtypes = [terms[0][0].dtype.into(), multiplied, out.dtype.into()];
    let [dys, maps] = [0, 1].map(|place| terms.iter().map(move |term| &term[place]));
    // SAFETY: all have the sizes of the shape; a unit reads within its part of the pixels, the rows
    // and the channels, and writes those of its rows and columns that there are.
    unsafe {
        launch!(weight_kernel, grid(&out.client, cubes, (SIDE * SIDE) as u32);;
            arrays(dys), arrays(maps), array(&out), sizes, pixels, chunk,
            shape.kernel, shape.stride, shape.padding, cores, dtypes);
    }
    match parts {
        1 => out,
        parts => total(out, shape, parts, dtype),
    }
}

fn total<R: CubeRuntime>(
    parts: CubeTensor<R>,
    shape: &ConvShape,
    count: usize,
    dtype: DType,
) -> CubeTensor<R> {
    let total = empty(&parts, shape.of(Role::Weight), dtype);
    let length = total.meta.num_elements();
    let cubes = row_of_cubes(&total.client, length.div_ceil(ELEMENTS), (ELEMENTS * SHARES) as u32);
    // SAFETY: there are `count` parts of `length` elements each, and units stop at the last element.
    unsafe {
        launch!(total_kernel, cubes;
            parts, total; length, count, dtype.into());
    }
    total
}
