//! The products of all queries with all prototypes, and the lengths of both.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::ops::permute;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::{
    cast, cube_sum_in, elementwise, empty, lane_sum, launch, product, row_of_cubes, unit_below,
    units, vector_size, wide,
};
use crate::distances::Metric;
use crate::distances::reference::LEAST_SQUARE;

/// Queries and prototypes, contiguous and not empty, with their bilinear forms in f32.
pub struct Forms<R: CubeRuntime> {
    pub metric: Metric,
    /// Queries `[t, q, d]` and prototypes `[t, ways, d]`.
    pub of: [CubeTensor<R>; 2],
    /// `[t, q, ways]`
    pub products: CubeTensor<R>,
    /// Squared lengths, `[t * q]` and `[t * ways]`.
    pub squares: [CubeTensor<R>; 2],
}

/// Factors of queries in the gradients of prototypes, and of prototypes in those of queries,
/// `[t, q, ways]` each: `[by queries, by prototypes]`.
pub type Weights<R> = [CubeTensor<R>; 2];

/// The score from a product and squared lengths.
#[cube]
pub fn score(
    product: f32,
    of_query: f32,
    of_prototype: f32,
    least: f32,
    #[comptime] metric: Metric,
) -> f32 {
    match metric {
        Metric::SquaredEuclidean => product * 2.0f32 - of_query - of_prototype,
        Metric::Cosine => {
            product / (f32::sqrt(max(of_query, least)) * f32::sqrt(max(of_prototype, least)))
        }
    }
}

/// The squared length of the row of `x` that begins at `own`, in every unit.
#[cube]
pub fn square_of<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    own: usize,
    vectors: usize,
    parts: &mut SharedMemory<f32>,
    #[comptime] units: u32,
) -> f32 {
    let mut square = 0.0f32;
    let mut at = UNIT_POS as usize;
    while at < vectors {
        let values = wide(x[own + at]);
        square += lane_sum(values * values);
        at += comptime!(units as usize);
    }
    cube_sum_in(square, parts, units)
}

/// A cube for each row.
#[cube(launch_unchecked)]
fn squares_kernel<F: Float, N: Size>(
    x: &Array<Vector<F, N>>,
    squares: &mut Array<f32>,
    rows: usize,
    vectors: usize,
    #[comptime] units: u32,
    #[define(F)] _dtype: StorageType,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let mut parts = SharedMemory::<f32>::new(comptime!(units as usize));
    let square = square_of::<F, N>(x, row * vectors, vectors, &mut parts, units);
    if UNIT_POS == 0 {
        squares[row] = square;
    }
}

#[cube(launch_unchecked)]
fn scores_kernel<F: Float>(
    products: &Array<f32>,
    of_queries: &Array<f32>,
    of_prototypes: &Array<f32>,
    scores: &mut Array<F>,
    count: usize,
    queries: usize,
    ways: usize,
    least: f32,
    #[comptime] metric: Metric,
    #[define(F)] _dtype: StorageType,
) {
    let at = unit_below(count);
    let row = at / ways;
    let to = row / queries * ways + at % ways;
    let value = score(products[at], of_queries[row], of_prototypes[to], least, metric);
    scores[at] = F::cast_from(value);
}

/// The weights of a cosine, from the gradient of the scores.
#[cube(launch_unchecked)]
fn weights_kernel<F: Float>(
    g: &Array<F>,
    of_queries: &Array<f32>,
    of_prototypes: &Array<f32>,
    by_queries: &mut Array<f32>,
    by_prototypes: &mut Array<f32>,
    count: usize,
    queries: usize,
    ways: usize,
    least: f32,
    #[define(F)] _dtype: StorageType,
) {
    let at = unit_below(count);
    let row = at / ways;
    let to = row / queries * ways + at % ways;
    let g = f32::cast_from(g[at]);
    by_queries[at] = g / f32::sqrt(max(of_prototypes[to], least));
    by_prototypes[at] = g / f32::sqrt(max(of_queries[row], least));
}

impl<R: CubeRuntime> Forms<R> {
    pub fn of(metric: Metric, of: [CubeTensor<R>; 2]) -> Self {
        let [queries, prototypes] = of.clone();
        let products = product(queries, permute(prototypes, &[0, 2, 1]), DType::F32);
        Self { metric, products, squares: of.each_ref().map(squares), of }
    }

    /// Queries of all tasks.
    pub fn queries(&self) -> usize {
        let [tasks, queries, _] = self.of[0].meta.shape().dims();
        tasks * queries
    }

    /// Queries of a task, and its classes.
    pub fn sizes(&self) -> [usize; 2] {
        let [_, queries, ways] = self.products.meta.shape().dims();
        [queries, ways]
    }

    pub fn scores(self) -> CubeTensor<R> {
        let scores = empty(&self.products, self.products.meta.shape().clone(), self.of[0].dtype);
        let (count, [queries, ways]) = (scores.meta.num_elements(), self.sizes());
        let [of_queries, of_prototypes] = &self.squares;
        // SAFETY: products and scores have `count` elements, squares one for each query and each
        // prototype, and units stop at `count`.
        unsafe {
            launch!(scores_kernel, elementwise(&scores.client, count);
                self.products, of_queries, of_prototypes, scores;
                count, queries, ways, LEAST_SQUARE as f32, self.metric, scores.dtype.into());
        }
        scores
    }

    /// The weights for a gradient of the scores, which is contiguous.
    pub fn weights(&self, g: CubeTensor<R>) -> Weights<R> {
        if self.metric == Metric::SquaredEuclidean {
            return [cast(g.clone(), DType::F32), cast(g, DType::F32)];
        }
        let weights = [(); 2].map(|()| empty(&g, g.meta.shape().clone(), DType::F32));
        let (count, [queries, ways]) = (g.meta.num_elements(), self.sizes());
        let [of_queries, of_prototypes] = &self.squares;
        let [by_queries, by_prototypes] = &weights;
        // SAFETY: as in `scores`; weights have `count` elements.
        unsafe {
            launch!(weights_kernel, elementwise(&g.client, count);
                g, of_queries, of_prototypes, by_queries, by_prototypes;
                count, queries, ways, LEAST_SQUARE as f32, g.dtype.into());
        }
        weights
    }
}

/// The squared length of each row, `[t, n, d]` to `[t * n]`.
fn squares<R: CubeRuntime>(x: &CubeTensor<R>) -> CubeTensor<R> {
    let [tasks, rows, features] = x.meta.shape().dims();
    let rows = tasks * rows;
    let width = vector_size(&x.client, features, x.elem_size());
    let vectors = features / width;
    let units = units(&x.client).min((vectors as u32).next_power_of_two().max(32));
    let squares = empty(x, [rows], DType::F32);
    // SAFETY: `x` has `rows` rows of `vectors` vectors, `squares` an element a row, and cubes stop
    // there.
    unsafe {
        launch!(squares_kernel, row_of_cubes(&x.client, rows, units), width;
            x, squares; rows, vectors, units, x.dtype.into());
    }
    squares
}
