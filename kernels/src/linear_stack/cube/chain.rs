//! Products that follow each other, in few launches.
//!
//! Through small ones a cube takes a whole lane, an element of the result a unit, and waits between two of
//! them for its own units alone: a network of three layers goes forward in one launch. A larger product is a
//! launch of its own, with a cube for each tile of each lane.

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::{
    SIDE, Sizes, SizesLaunch, Steps, TILE, Tiles, accumulate, arrays, empty, empty_all, grid,
    interleaved, into_contiguous, launch, most_tensors, units,
};

/// Multiplications of a unit in a small product, one after the other, at most: microseconds, as a launch
/// takes.
const MOST_OF_A_UNIT: usize = 512;

/// Elements of a factor in shared memory at most, which has four: 32 KiB. A device with less reads global memory.
const MOST_STAGED: usize = 2048;

/// The place of a tensor among those of a chain.
pub type Place = usize;

/// A sum of products, of those factors transposed that are `turned`, and what becomes of it in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Product {
    /// Pairs of factors. Without any the sum is zero.
    pub terms: [Option<[Place; 2]>; 2],
    pub turned: [bool; 2],
    /// Added to every row, `[t, c]`.
    pub bias: Option<Place>,
    /// True if every value up to zero becomes zero; NaN stays.
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

    /// True if so many units need little time for it.
    fn is_small(&self, sizes @ [_, depth, columns]: [usize; 3], units: u32) -> bool {
        let elements = (self.rows(sizes) * columns).div_ceil(units as usize);
        let terms = self.terms.iter().flatten().count();
        elements * (terms * depth).max(1) <= MOST_OF_A_UNIT
    }
}

/// Writes what becomes of a sum of this row, which may be that of the totals.
#[cube]
fn finish(
    of: &mut Sequence<Array<f32>>,
    sizes: &Sizes,
    row: usize,
    column: usize,
    sum: f32,
    #[comptime] product: Product,
) {
    let matrix = CUBE_POS_Z as usize;
    let of_column = matrix * sizes.columns + column;
    if comptime!(product.totals.is_some()) {
        if row == sizes.rows {
            let totals = of.index_mut(comptime!(product.totals.expect("just checked")));
            totals[of_column] = sum;
        }
    }
    if row < sizes.rows {
        let at = (matrix * sizes.rows + row) * sizes.columns + column;
        let mut result = sum;
        if comptime!(product.bias.is_some()) {
            let bias = of.index(comptime!(product.bias.expect("just checked")));
            result += bias[of_column];
        }
        if comptime!(product.relu) {
            if result <= 0.0f32 {
                result = 0.0f32;
            }
        }
        if comptime!(product.gate.is_some()) {
            let gate = of.index(comptime!(product.gate.expect("just checked")));
            if gate[at] <= 0.0f32 {
                result = 0.0f32;
            }
        }
        let out = of.index_mut(comptime!(product.out));
        out[at] = result;
    }
}

/// The steps of a contiguous matrix of these rows and columns, or of one whose transpose has them.
#[cube]
fn steps(rows: usize, columns: usize, #[comptime] turned: bool) -> Steps {
    if comptime!(turned) {
        Steps { matrix: rows * columns, row: 1usize, column: rows }
    } else {
        Steps { matrix: rows * columns, row: columns, column: 1usize }
    }
}

/// Elements of a row of such a matrix in shared memory, an odd number: then units that read down a column read
/// different banks.
#[cube]
fn pitch(rows: usize, columns: usize, #[comptime] turned: bool) -> usize {
    let length = if comptime!(turned) { rows } else { columns };
    length + 1 - length % 2
}

/// Copies the matrix of this cube into shared memory from `first` on.
#[cube]
fn stage(
    shared: &mut SharedMemory<f32>,
    of: &Array<f32>,
    sizes: (usize, usize),
    #[comptime] turned: bool,
    #[comptime] first: usize,
    #[comptime] units: u32,
) {
    let (rows, columns) = sizes;
    let length = if comptime!(turned) { rows } else { columns };
    let pitch = pitch(rows, columns, turned);
    let mut at = UNIT_POS as usize;
    while at < rows * columns {
        shared[first + at / length * pitch + at % length] =
            of[CUBE_POS_Z as usize * (rows * columns) + at];
        at += comptime!(units as usize);
    }
}

/// The steps of a matrix from [`stage`].
#[cube]
fn staged_steps(rows: usize, columns: usize, #[comptime] turned: bool) -> Steps {
    let pitch = pitch(rows, columns, turned);
    if comptime!(turned) {
        Steps { matrix: 0usize, row: 1usize, column: pitch }
    } else {
        Steps { matrix: 0usize, row: pitch, column: 1usize }
    }
}

/// A cube for each lane, through all products. Factors of up to `staged` elements are read from shared memory, where
/// there is room for those of two terms; from global memory with none staged.
#[cube(launch_unchecked)]
fn chain_kernel(
    of: &mut Sequence<Array<f32>>,
    sizes: &Sequence<Sizes>,
    #[comptime] products: Vec<Product>,
    #[comptime] staged: usize,
    #[comptime] units: u32,
) {
    let matrix = CUBE_POS_Z as usize;
    let mut shared = SharedMemory::<f32>::new(comptime!((4 * staged).max(1)));
    #[unroll]
    for index in 0..comptime!(products.len()) {
        let product = comptime!(products[index]);
        let sizes = sizes.index(index);
        if comptime!(index > 0) {
            // Other units of this cube wrote what a factor is.
            sync_storage();
        }
        if comptime!(staged > 0) {
            #[unroll]
            for term in 0..2usize {
                if comptime!(product.terms[term].is_some()) {
                    let [left, right] = comptime!(product.terms[term].expect("just checked"));
                    let (rows, columns) = ((sizes.rows, sizes.depth), (sizes.depth, sizes.columns));
                    let first = comptime!(2 * term * staged);
                    let turned = comptime!(product.turned);
                    stage(&mut shared, of.index(left), rows, comptime!(turned[0]), first, units);
                    let first = comptime!((2 * term + 1) * staged);
                    stage(
                        &mut shared,
                        of.index(right),
                        columns,
                        comptime!(turned[1]),
                        first,
                        units,
                    );
                }
            }
            sync_cube();
        }
        let rows = sizes.rows + comptime!(usize::from(product.totals.is_some()));
        let mut at = UNIT_POS as usize;
        while at < rows * sizes.columns {
            let (row, column) = (at / sizes.columns, at % sizes.columns);
            let mut sum = 0.0f32;
            #[unroll]
            for term in 0..2usize {
                if comptime!(product.terms[term].is_some()) {
                    let [left, right] = comptime!(product.terms[term].expect("just checked"));
                    let (left, right) = (of.index(left), of.index(right));
                    let turned = comptime!(product.turned);
                    // The totals are those of the first term.
                    let of_totals = row == sizes.rows;
                    if !of_totals || comptime!(term == 0) {
                        if comptime!(staged > 0) {
                            let of_left =
                                staged_steps(sizes.rows, sizes.depth, comptime!(turned[0]));
                            let of_right =
                                staged_steps(sizes.depth, sizes.columns, comptime!(turned[1]));
                            let first_left = comptime!(2 * term * staged) + row * of_left.row;
                            let first_right =
                                comptime!((2 * term + 1) * staged) + column * of_right.column;
                            for k in 0..sizes.depth {
                                let mut factor = 1.0f32;
                                if !of_totals {
                                    factor = shared[first_left + k * of_left.column];
                                }
                                sum += factor * shared[first_right + k * of_right.row];
                            }
                        } else {
                            let of_left = steps(sizes.rows, sizes.depth, comptime!(turned[0]));
                            let of_right = steps(sizes.depth, sizes.columns, comptime!(turned[1]));
                            let first_left = matrix * of_left.matrix + row * of_left.row;
                            let first_right = matrix * of_right.matrix + column * of_right.column;
                            for k in 0..sizes.depth {
                                let mut factor = 1.0f32;
                                if !of_totals {
                                    factor = left[first_left + k * of_left.column];
                                }
                                sum += factor * right[first_right + k * of_right.row];
                            }
                        }
                    }
                }
            }
            finish(of, sizes, row, column, sum, product);
            at += comptime!(units as usize);
        }
    }
}

/// A cube for each tile of each lane.
#[cube(launch_unchecked)]
fn tile_kernel(of: &mut Sequence<Array<f32>>, sizes: &Sizes, #[comptime] product: Product) {
    let first = (CUBE_POS_Y as usize * TILE, CUBE_POS_X as usize * TILE);
    let mut tiles = Tiles::<f32>::new(1usize, None);
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
    let sums = tiles.sums();
    #[unroll]
    for down in 0..4usize {
        let row = first.0 + interleaved(UNIT_POS as usize / SIDE, down);
        #[unroll]
        for across in 0..4usize {
            let column = first.1 + interleaved(UNIT_POS as usize % SIDE, across);
            if column < sizes.columns {
                let four = sums[down];
                finish(of, sizes, row, column, four[across], product);
            }
        }
    }
}

/// Products of matrices that tensors hold lane after lane, f32 and contiguous.
pub struct Chain<R: CubeRuntime> {
    lanes: usize,
    /// In the order of their places; one is missing that a product writes.
    tensors: Vec<Option<CubeTensor<R>>>,
    /// In the same order; empty of those that are there.
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
        self.shapes.push(Shape::new([0]));
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

    /// Multiplies, and gives the tensors of all places. What a launch of small products writes shares its memory.
    pub fn run(self) -> Vec<CubeTensor<R>> {
        let Self { lanes, mut tensors, shapes, products } = self;
        let like = tensors.iter().flatten().next().expect("something to multiply").clone();
        let client = &like.client;
        let units = units(client);
        let is_small = |(product, sizes): &(Product, [usize; 3])| product.is_small(*sizes, units);
        // What CubeCL has as a barrier there orders no memory but a cube's own.
        let alone = R::name(client) == "wgpu<msl>";
        let fits = |part: &[_]| compacted(part).1.len() <= most_tensors(client, 1, 0);
        let mut rest = &products[..];
        while let Some(first) = rest.first() {
            let follow = rest.iter().take_while(|of| is_small(of) && !alone).count();
            let count_of_part = (2..=follow).rev().find(|&count| fits(&rest[..count])).unwrap_or(1);
            let (part, behind) = rest.split_at(count_of_part);
            let written = part.iter().flat_map(|(product, _)| [Some(product.out), product.totals]);
            let written: Vec<_> = written.flatten().collect();
            let shapes = written.iter().map(|place| shapes[*place].clone());
            let outputs = match is_small(first) {
                true => empty_all(&like, shapes.collect(), DType::F32),
                false => shapes.map(|shape| empty(&like, shape, DType::F32)).collect(),
            };
            for (place, output) in written.into_iter().zip(outputs) {
                tensors[place] = Some(output);
            }
            launch(lanes, &tensors, part, is_small(first).then_some(units));
            rest = behind;
        }
        tensors.into_iter().map(|tensor| tensor.expect("written")).collect()
    }
}

/// These products with places among the tensors that they need, and the places of these in the chain.
fn compacted(of: &[(Product, [usize; 3])]) -> (Vec<Product>, Vec<Place>) {
    let mut places = Vec::new();
    let mut products: Vec<_> = of.iter().map(|(product, _)| *product).collect();
    for place in products.iter_mut().flat_map(Product::places) {
        let known_place = places.iter().position(|known| known == place);
        *place = known_place.unwrap_or_else(|| {
            places.push(*place);
            places.len() - 1
        });
    }
    (products, places)
}

/// Launches one product, or small ones by cubes of so many units.
fn launch<R: CubeRuntime>(
    lanes: usize,
    tensors: &[Option<CubeTensor<R>>],
    of: &[(Product, [usize; 3])],
    small: Option<u32>,
) {
    let (products, places) = compacted(of);
    let bound: Vec<_> = places.iter().flat_map(|place| &tensors[*place]).collect();
    let client = &bound[0].client;
    let bound = arrays(bound.iter().copied());
    let mut sizes =
        of.iter().map(|&(_, [rows, depth, columns])| SizesLaunch::new(rows, depth, columns));
    // Rows have an element more in shared memory where their number is even.
    let staged = of.iter().map(|(_, [rows, depth, columns])| {
        let padded = |rows: usize, columns: usize| rows * columns + rows.max(columns);
        padded(*rows, *depth).max(padded(*depth, *columns))
    });
    let staged = staged.max().unwrap_or(0).next_power_of_two();
    let bytes = 4 * staged * size_of::<f32>();
    let fits = bytes <= client.properties().hardware.max_shared_memory_size;
    let staged = if fits && staged <= MOST_STAGED { staged } else { 0 };
    // SAFETY: a unit reads elements within the matrices, which are contiguous and of these sizes, a bias and a
    // gate that have an element a column and one an element of the result, and writes elements that there are,
    // of tensors that only one product writes.
    unsafe {
        if let Some(units) = small {
            launch!(chain_kernel, grid(client, [1, 1, lanes], units);;
                bound, sizes.collect(), products, staged, units);
        } else {
            let (product, size) = of[0];
            let [across, down] = [size[2], product.rows(size)].map(|side| side.div_ceil(TILE));
            launch!(tile_kernel, grid(client, [across, down, lanes], (SIDE * SIDE) as u32);;
                bound, sizes.next().expect("a product"), products[0]);
        }
    }
}
