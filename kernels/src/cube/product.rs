//! Sums of products of matrices in full f32, of any layout, with what comes after them.
//!
//! Burn's own product multiplies f32 in TF32 where a device has tensor cores, with three decimal digits,
//! and takes longer to set up than a small product takes.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::tiles::{Four, SIDE, TILE, Tiles};
use super::{array, arrays, empty, grid, launch};

/// Between elements of one matrix and the next, of a row and the next, and of a column and the next.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Steps {
    matrix: usize,
    row: usize,
    column: usize,
}

/// Four elements along the rows, or where `across` along the columns, zeros beside the matrix.
#[cube]
fn four<F: Float>(
    of: &Array<F>,
    steps: &Steps,
    matrix: usize,
    at: (usize, usize),
    ends: (usize, usize),
    #[comptime] across: bool,
) -> Vector<f32, Four> {
    let mut found = Vector::<f32, Four>::new(0.0f32);
    #[unroll]
    for place in 0..4usize {
        let (mut row, mut column) = at;
        if comptime!(across) {
            column += place;
        } else {
            row += place;
        }
        if row < ends.0 && column < ends.1 {
            let from = matrix * steps.matrix + row * steps.row + column * steps.column;
            found[place] = f32::cast_from(of[from]);
        }
    }
    found
}

/// The sizes of a product, `[rows, depth]` times `[depth, columns]`.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Sizes {
    rows: usize,
    depth: usize,
    columns: usize,
}

/// Adds a product to the sums of a cube's tile; with `ones`, that of a row of ones after the last too.
#[cube]
fn accumulate<F: Float, G: Float>(
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
        let (mut row, mut column) = (first.0 + down * 4, k + across);
        let (mut at, mut fours) = (across, down);
        if left_steps.column != 1usize {
            row = first.0 + across * 4;
            column = k + down;
            at = down;
            fours = across;
        }
        let mut found = four::<F>(left, left_steps, matrix, (row, column), of_rows, false);
        if comptime!(ones) {
            #[unroll]
            for place in 0..4usize {
                if row + place == sizes.rows && column < sizes.depth {
                    found[place] = 1.0f32;
                }
            }
        }
        tiles.put_left(at, fours, found);
        let (mut row, mut column) = (k + down, first.1 + across * 4);
        let (mut at, mut fours) = (down, across);
        if right_steps.column != 1usize {
            row = k + across;
            column = first.1 + down * 4;
            at = across;
            fours = down;
        }
        let found = four::<G>(right, right_steps, matrix, (row, column), of_columns, true);
        tiles.put_right(at, fours, found);
        tiles.multiply();
    }
}

/// A cube for each tile of each result.
#[cube(launch_unchecked)]
fn product_kernel<F: Float, G: Float, O: Float>(
    lefts: &Sequence<Array<F>>,
    rights: &Sequence<Array<G>>,
    biases: &Sequence<Array<f32>>,
    gates: &Sequence<Array<f32>>,
    out: &mut Array<O>,
    totals: &mut Sequence<Array<f32>>,
    sizes: &Sizes,
    left_steps: &Steps,
    right_steps: &Steps,
    #[comptime] relu: bool,
    #[comptime] ones: bool,
    #[define(F, G, O)] _dtypes: [StorageType; 3],
) {
    let (rows, columns) = (sizes.rows, sizes.columns);
    let first = (CUBE_POS_Y as usize * TILE, CUBE_POS_X as usize * TILE);
    let mut tiles = Tiles::<f32>::new(1usize, None);
    let terms = comptime!(lefts.len());
    #[unroll]
    for term in 0..terms {
        accumulate::<F, G>(
            lefts.index(term),
            rights.index(term),
            &mut tiles,
            left_steps,
            right_steps,
            sizes,
            first,
            comptime!(ones && term == 0),
        );
    }
    let sums = tiles.sums();
    let matrix = CUBE_POS_Z as usize;
    #[unroll]
    for down in 0..4usize {
        let row = first.0 + UNIT_POS as usize / SIDE * 4 + down;
        #[unroll]
        for across in 0..4usize {
            let column = first.1 + UNIT_POS as usize % SIDE * 4 + across;
            if column < columns {
                let four = sums[down];
                let mut sum = four[across];
                if comptime!(totals.len() == 1) {
                    if row == rows {
                        let totals = totals.index_mut(0usize);
                        totals[matrix * columns + column] = sum;
                    }
                }
                if row < rows {
                    let at = (matrix * rows + row) * columns + column;
                    if comptime!(biases.len() == 1) {
                        sum += biases.index(0usize)[matrix * columns + column];
                    }
                    if comptime!(relu) {
                        if sum <= 0.0f32 {
                            sum = 0.0f32;
                        }
                    }
                    if comptime!(gates.len() == 1) {
                        if gates.index(0usize)[at] <= 0.0f32 {
                            sum = 0.0f32;
                        }
                    }
                    out[at] = O::cast_from(sum);
                }
            }
        }
    }
}

/// Several matrices of one size in a tensor.
#[derive(Clone)]
pub struct Matrices<R: CubeRuntime> {
    pub of: CubeTensor<R>,
    /// Elements between one matrix and the next, a row and the next, and a column and the next.
    pub steps: [usize; 3],
}

impl<R: CubeRuntime> Matrices<R> {
    /// Matrices of so many rows and columns in a contiguous tensor.
    pub fn new(of: CubeTensor<R>, [rows, columns]: [usize; 2]) -> Self {
        Self { of, steps: [rows * columns, columns, 1] }
    }

    /// Their transposes.
    pub fn transposed(self) -> Self {
        let [matrix, row, column] = self.steps;
        Self { of: self.of, steps: [matrix, column, row] }
    }
}

/// What becomes of a sum of products `[t, r, c]`, in this order.
pub struct Finish<R: CubeRuntime> {
    /// Added to every row, `[t, c]`.
    pub bias: Option<CubeTensor<R>>,
    /// Whether what is not more than zero becomes zero, but for NaN.
    pub relu: bool,
    /// Where this, of the shape of the sum, is not more than zero, neither is the result, unless it is
    /// NaN.
    pub gate: Option<CubeTensor<R>>,
}

impl<R: CubeRuntime> Default for Finish<R> {
    fn default() -> Self {
        Self { bias: None, relu: false, gate: None }
    }
}

/// What is multiplied: up to two products of the same sizes and steps are added up.
pub struct Products<R: CubeRuntime> {
    pub terms: Vec<[Matrices<R>; 2]>,
    /// Matrices, rows, depth and columns.
    pub sizes: [usize; 4],
    /// Of the result.
    pub dtype: DType,
}

impl<R: CubeRuntime> Products<R> {
    /// `[t, r, c]`, in one launch.
    pub fn finished(self, like: &CubeTensor<R>, finish: Finish<R>) -> CubeTensor<R> {
        self.launch(like, finish, None).0
    }

    /// `[t, r, c]`, and where the first term is `summed` the sums over the rows of its right matrices,
    /// else zeros, `[t * c]`.
    pub fn with_totals(self, like: &CubeTensor<R>, summed: bool) -> [CubeTensor<R>; 2] {
        let (out, totals) = self.launch(like, Finish::default(), Some(summed));
        [out, totals.expect("asked for")]
    }

    fn launch(
        self,
        like: &CubeTensor<R>,
        finish: Finish<R>,
        totals: Option<bool>,
    ) -> (CubeTensor<R>, Option<CubeTensor<R>>) {
        let [matrices, rows, depth, columns] = self.sizes;
        let out = empty(like, [matrices, rows, columns], self.dtype);
        let summed = totals == Some(true);
        let totals = totals.map(|_| empty(like, [matrices * columns], DType::F32));
        let rows_with_totals = rows + usize::from(totals.is_some());
        if matrices * rows_with_totals * columns == 0 {
            return (out, totals);
        }
        let tiles = [columns, rows_with_totals].map(|side| side.div_ceil(TILE));
        let of = |side: usize| self.terms.iter().map(move |term| &term[side]);
        // Of no terms nothing is read.
        let [left, right] = [0, 1].map(|side| of(side).next());
        let steps = |of: Option<&Matrices<R>>| {
            let [matrix, row, column] = of.map_or([0, 0, 1], |of| of.steps);
            StepsLaunch::new(matrix, row, column)
        };
        let dtype = |of: Option<&Matrices<R>>| of.map_or(out.dtype, |of| of.of.dtype).into();
        let [lefts, rights] = [0, 1].map(|side| of(side).map(|matrices| &matrices.of));
        // SAFETY: a unit reads elements within the matrices by their steps, a bias and a gate that have
        // an element a column and one an element of the result, and writes those of its tile that there
        // are.
        unsafe {
            launch!(product_kernel,
                grid(&out.client, [tiles[0], tiles[1], matrices], (SIDE * SIDE) as u32);;
                arrays(lefts), arrays(rights), arrays(&finish.bias), arrays(&finish.gate),
                array(&out), arrays(&totals), SizesLaunch::new(rows, depth, columns),
                steps(left), steps(right), finish.relu, summed, [dtype(left), dtype(right), out.dtype.into()]);
        }
        (out, totals)
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
    let like = left.clone();
    let term = [left, right].map(|of| {
        let steps = [0, 1, 2].map(|axis| of.meta.strides()[axis]);
        Matrices { of, steps }
    });
    let products = Products { terms: vec![term], sizes: [matrices, rows, depth, columns], dtype };
    products.finished(&like, Finish::default())
}
