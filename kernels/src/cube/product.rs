//! Products of matrices in full f32, of any layout.
//!
//! Burn's own product multiplies f32 in TF32 where a device has tensor cores, with three decimal digits,
//! and takes longer to set up than a small product takes.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::tiles::{Four, SIDE, TILE, Tiles, interleaved};
use super::{Launch, after_launch, array, empty, grid, strided_array};

/// Between elements of one matrix and the next, of a row and the next, and of a column and the next.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Steps {
    pub matrix: usize,
    pub row: usize,
    pub column: usize,
}

/// Four elements along the rows, or where `across` along the columns, [interleaved] from the place `at`; zeros beside
/// the matrix.
#[cube]
fn four<F: Float>(
    of: &Array<F>,
    steps: &Steps,
    matrix: usize,
    at: (usize, usize),
    ends: (usize, usize),
    #[comptime] across: bool,
) -> Vector<f32, Four> {
    let mut values = Vector::<f32, Four>::new(0.0f32);
    #[unroll]
    for place in 0..4usize {
        let (mut row, mut column) = at;
        if comptime!(across) {
            column += interleaved(0usize, place);
        } else {
            row += interleaved(0usize, place);
        }
        if row < ends.0 && column < ends.1 {
            let from = matrix * steps.matrix + row * steps.row + column * steps.column;
            values[place] = f32::cast_from(of[from]);
        }
    }
    values
}

/// The sizes of a product, `[rows, depth]` times `[depth, columns]`.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Sizes {
    pub rows: usize,
    pub depth: usize,
    pub columns: usize,
}

/// Adds a product to the sums of a cube's tile, of the matrices of its lane; with `ones`, that of a row of ones
/// after the last of the left one too.
#[cube]
pub fn accumulate<F: Float, G: Float>(
    left: &Array<F>,
    right: &Array<G>,
    tiles: &mut Tiles<f32>,
    left_steps: &Steps,
    right_steps: &Steps,
    sizes: &Sizes,
    first: (usize, usize),
    #[comptime] ones: bool,
) {
    let matrix = CUBE_POS_Z as usize;
    let across = UNIT_POS as usize % SIDE;
    let down = UNIT_POS as usize / SIDE;
    let of_rows = (sizes.rows, sizes.depth);
    let of_columns = (sizes.depth, sizes.columns);
    for step in 0..sizes.depth.div_ceil(SIDE) {
        // Units that are neighbours read neighbours, whichever way a matrix lies.
        let k = step * SIDE;
        let (mut row, mut column) = (first.0 + down, k + across);
        let (mut at, mut fours) = (across, down);
        if left_steps.column != 1usize {
            row = first.0 + across;
            column = k + down;
            at = down;
            fours = across;
        }
        let mut values = four::<F>(left, left_steps, matrix, (row, column), of_rows, false);
        if comptime!(ones) {
            #[unroll]
            for place in 0..4usize {
                if row + interleaved(0usize, place) == sizes.rows && column < sizes.depth {
                    values[place] = 1.0f32;
                }
            }
        }
        tiles.put_left(at, fours, values);
        let (mut row, mut column) = (k + down, first.1 + across);
        let (mut at, mut fours) = (down, across);
        if right_steps.column != 1usize {
            row = k + across;
            column = first.1 + down;
            at = across;
            fours = down;
        }
        let values = four::<G>(right, right_steps, matrix, (row, column), of_columns, true);
        tiles.put_right(at, fours, values);
        tiles.multiply();
    }
}

/// A cube for each tile of each result.
#[cube(launch_unchecked)]
fn product_kernel<F: Float, G: Float, O: Float>(
    left: &Array<F>,
    right: &Array<G>,
    out: &mut Array<O>,
    sizes: &Sizes,
    left_steps: &Steps,
    right_steps: &Steps,
    #[define(F, G, O)] _dtypes: [StorageType; 3],
) {
    let first = (CUBE_POS_Y as usize * TILE, CUBE_POS_X as usize * TILE);
    let mut tiles = Tiles::<f32>::new(1usize, None);
    accumulate::<F, G>(left, right, &mut tiles, left_steps, right_steps, sizes, first, false);
    let sums = tiles.sums();
    let matrix = CUBE_POS_Z as usize;
    #[unroll]
    for down in 0..4usize {
        let row = first.0 + interleaved(UNIT_POS as usize / SIDE, down);
        #[unroll]
        for across in 0..4usize {
            let column = first.1 + interleaved(UNIT_POS as usize % SIDE, across);
            if row < sizes.rows && column < sizes.columns {
                let four = sums[down];
                out[(matrix * sizes.rows + row) * sizes.columns + column] =
                    O::cast_from(four[across]);
            }
        }
    }
}

/// `[t, r, k]` times `[t, k, c]`, of any strides, as a contiguous tensor of `dtype`.
pub fn product<R: CubeRuntime>(
    left: CubeTensor<R>,
    right: CubeTensor<R>,
    dtype: DType,
) -> CubeTensor<R> {
    let [matrices, rows, depth] = left.meta.shape().dims();
    let [_, _, columns] = right.meta.shape().dims();
    let out = empty(&left, [matrices, rows, columns], dtype);
    if matrices * rows * columns == 0 {
        return out;
    }
    let steps = |of: &CubeTensor<R>| {
        let [matrix, row, column] = [0, 1, 2].map(|axis| of.meta.strides()[axis]);
        StepsLaunch::new(matrix, row, column)
    };
    let tiles = [columns, rows].map(|side| side.div_ceil(TILE));
    // SAFETY: a unit reads elements within the matrices by their steps, and writes those of its tile that
    // there are.
    unsafe {
        let Launch { client, cubes, dim } =
            grid(&out.client, [tiles[0], tiles[1], matrices], (SIDE * SIDE) as u32);
        product_kernel::launch_unchecked::<R>(
            client,
            cubes,
            dim,
            strided_array(&left),
            strided_array(&right),
            array(&out),
            SizesLaunch::new(rows, depth, columns),
            steps(&left),
            steps(&right),
            [left.dtype.into(), right.dtype.into(), out.dtype.into()],
        );
        after_launch(client, "product_kernel");
    }
    out
}
