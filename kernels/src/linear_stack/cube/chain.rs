//! Products that follow each other, in as few launches as their sizes allow.
//!
//! Of small layers a cube takes a whole lane through product after product, and waits between two of them
//! for its own units alone: a network of three layers goes forward in one launch. A product with more than
//! one tile a lane is a launch of its own, with a cube for each of its tiles.

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::{
    SIDE, Sizes, SizesLaunch, Steps, TILE, Tiles, accumulate, arrays, empty_all, grid, launch,
};

/// The place of a tensor among those of a chain.
pub type Place = usize;

/// A sum of products, of those factors transposed that are `turned`, and what becomes of it in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// Pairs of factors. Without any the sum is zero.
    pub terms: [Option<[Place; 2]>; 2],
    pub turned: [bool; 2],
    /// Added to every row, `[t, c]`.
    pub bias: Option<Place>,
    /// Whether what is not more than zero becomes zero, but for NaN.
    pub relu: bool,
    /// Where this, of the shape of the sum, is not more than zero, neither is the result, unless it is NaN.
    pub gate: Option<Place>,
    /// Where the result lies, `[t, r, c]`.
    pub out: Place,
    /// Where the sums over the rows of the first term's right matrices lie, `[t, c]`: zeros without one.
    pub totals: Option<Place>,
}

impl Product {
    fn places(&mut self) -> impl Iterator<Item = &mut Place> {
        let terms = self.terms.iter_mut().flatten().flatten();
        let others = [&mut self.bias, &mut self.gate, &mut self.totals].into_iter().flatten();
        terms.chain(others).chain([&mut self.out])
    }

    /// Rows of the result, and one for the totals.
    fn rows(&self, [rows, ..]: [usize; 3]) -> usize {
        rows + usize::from(self.totals.is_some())
    }
}

/// How a contiguous matrix lies of which these are the sides.
#[cube]
fn steps(rows: usize, columns: usize, #[comptime] turned: bool) -> Steps {
    if comptime!(turned) {
        Steps { matrix: rows * columns, row: 1usize, column: rows }
    } else {
        Steps { matrix: rows * columns, row: columns, column: 1usize }
    }
}

/// Writes what a unit has of a tile.
#[cube]
fn finish(
    of: &mut Sequence<Array<f32>>,
    tiles: &Tiles<f32>,
    sizes: &Sizes,
    first: (usize, usize),
    #[comptime] product: Product,
) {
    let (rows, columns) = (sizes.rows, sizes.columns);
    let matrix = CUBE_POS_Z as usize;
    #[unroll]
    for down in 0..4usize {
        let row = first.0 + UNIT_POS as usize / SIDE * 4 + down;
        #[unroll]
        for across in 0..4usize {
            let column = first.1 + UNIT_POS as usize % SIDE * 4 + across;
            if column < columns {
                let mut sum = tiles.sum(down, across);
                if comptime!(product.totals.is_some()) {
                    if row == rows {
                        let totals = of.index_mut(comptime!(product.totals.expect("just checked")));
                        totals[matrix * columns + column] = sum;
                    }
                }
                if row < rows {
                    let at = (matrix * rows + row) * columns + column;
                    if comptime!(product.bias.is_some()) {
                        let bias = of.index(comptime!(product.bias.expect("just checked")));
                        sum += bias[matrix * columns + column];
                    }
                    if comptime!(product.relu) {
                        if sum <= 0.0f32 {
                            sum = 0.0f32;
                        }
                    }
                    if comptime!(product.gate.is_some()) {
                        let gate = of.index(comptime!(product.gate.expect("just checked")));
                        if gate[at] <= 0.0f32 {
                            sum = 0.0f32;
                        }
                    }
                    let out = of.index_mut(comptime!(product.out));
                    out[at] = sum;
                }
            }
        }
    }
}

/// A cube for each lane, or for each tile of each lane where there is one product.
#[cube(launch_unchecked)]
fn chain_kernel(
    of: &mut Sequence<Array<f32>>,
    sizes: &Sequence<Sizes>,
    #[comptime] products: Vec<Product>,
) {
    let first = (CUBE_POS_Y as usize * TILE, CUBE_POS_X as usize * TILE);
    let mut tiles = Tiles::<f32>::new(1usize, None);
    #[unroll]
    for index in 0..comptime!(products.len()) {
        let product = comptime!(products[index]);
        let sizes = sizes.index(index);
        if comptime!(index > 0) {
            // What a factor is was written by other units of this cube.
            sync_storage();
            tiles.clear();
        }
        #[unroll]
        for term in 0..2usize {
            if comptime!(product.terms[term].is_some()) {
                let [left, right] = comptime!(product.terms[term].expect("just checked"));
                accumulate::<f32, f32>(
                    of.index(left),
                    of.index(right),
                    &mut tiles,
                    &steps(sizes.rows, sizes.depth, comptime!(product.turned[0])),
                    &steps(sizes.depth, sizes.columns, comptime!(product.turned[1])),
                    sizes,
                    first,
                    comptime!(product.totals.is_some() && term == 0),
                );
            }
        }
        finish(of, &tiles, sizes, first, product);
    }
}

/// Products of matrices that tensors hold lane after lane, f32 and contiguous.
pub struct Chain<R: CubeRuntime> {
    lanes: usize,
    /// In the order of their places; one is missing that a product writes.
    tensors: Vec<Option<CubeTensor<R>>>,
    /// Of those that are missing.
    shapes: Vec<Shape>,
    /// With the rows, depth and columns of each.
    products: Vec<(Product, [usize; 3])>,
}

impl<R: CubeRuntime> Chain<R> {
    pub fn new(lanes: usize) -> Self {
        Self { lanes, tensors: Vec::new(), shapes: Vec::new(), products: Vec::new() }
    }

    /// The place of a tensor that is there.
    pub fn input(&mut self, tensor: CubeTensor<R>) -> Place {
        self.tensors.push(Some(into_contiguous(tensor)));
        self.tensors.len() - 1
    }

    /// A place for a tensor that a product writes.
    pub fn output(&mut self, shape: impl Into<Shape>) -> Place {
        self.shapes.push(shape.into());
        self.tensors.push(None);
        self.tensors.len() - 1
    }

    /// Adds a product of `[rows, depth]` and `[depth, columns]`.
    pub fn push(&mut self, product: Product, sizes: [usize; 3]) {
        self.products.push((product, sizes));
    }

    /// Multiplies, and gives the tensors of all places.
    pub fn run(self) -> Vec<CubeTensor<R>> {
        let Self { lanes, tensors, shapes, products } = self;
        let like = tensors.iter().flatten().next().expect("something to multiply");
        let mut outputs = empty_all(like, shapes, DType::F32).into_iter();
        let tensors: Vec<_> =
            tensors.into_iter().filter_map(|tensor| tensor.or_else(|| outputs.next())).collect();
        let is_tile = |(product, sizes): &(Product, [usize; 3])| {
            product.rows(*sizes) <= TILE && sizes[2] <= TILE
        };
        let most = tensors[0].client.properties().hardware.max_bindings as usize;
        for together in products.chunk_by(|one, next| is_tile(one) && is_tile(next)) {
            let (products, places) = compacted(together);
            // The sizes are bound too.
            match places.len() < most {
                true => launch(lanes, &tensors, (&places, products), together),
                false => together.chunks(1).for_each(|alone| {
                    let (products, places) = compacted(alone);
                    launch(lanes, &tensors, (&places, products), alone);
                }),
            }
        }
        tensors
    }
}

/// These products with places among the tensors that they need, and the places of these in the chain.
fn compacted(of: &[(Product, [usize; 3])]) -> (Vec<Product>, Vec<Place>) {
    let mut places = Vec::new();
    let mut products: Vec<_> = of.iter().map(|(product, _)| *product).collect();
    for place in products.iter_mut().flat_map(Product::places) {
        let found = places.iter().position(|known| known == place);
        *place = found.unwrap_or_else(|| {
            places.push(*place);
            places.len() - 1
        });
    }
    (products, places)
}

fn launch<R: CubeRuntime>(
    lanes: usize,
    tensors: &[CubeTensor<R>],
    (places, products): (&[Place], Vec<Product>),
    of: &[(Product, [usize; 3])],
) {
    let tiles = |(product, sizes): &(Product, [usize; 3])| {
        [sizes[2], product.rows(*sizes)].map(|side| side.div_ceil(TILE))
    };
    let [across, down] = tiles(&of[0]);
    let sizes =
        of.iter().map(|&(_, [rows, depth, columns])| SizesLaunch::new(rows, depth, columns));
    let bound = places.iter().map(|place| &tensors[*place]);
    // SAFETY: a unit reads elements within the matrices, which are contiguous and of these sizes, a bias and a
    // gate that have an element a column and one an element of the result, and writes those of its tile that
    // there are.
    unsafe {
        launch!(chain_kernel, grid(&tensors[0].client, [across, down, lanes], (SIDE * SIDE) as u32);;
            arrays(bound), sizes.collect(), products);
    }
}
