//! Tiles of two matrices in a cube's shared memory, and the sums of their products in registers: in those
//! of every unit, or in those of tensor cores.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use cubecl::client::ComputeClient;
use cubecl::ir::features::MmaConfig;
use cubecl::ir::{ElemType, FloatKind, StorageType};
use cubecl::prelude::*;

/// Side of the square of units that a cube is.
pub const SIDE: usize = 16;

/// Side of a cube's tile of the result.
pub const TILE: usize = 64;

/// Four numbers that are read and written at once.
pub type Four = Const<4>;

/// Rows of tensor cores' operands in shared memory at once: twice those of units, for which they leave little
/// to do between two waits for each other.
pub const DEPTH_OF_CORES: usize = 2 * SIDE;

/// The type that tensor cores round f32 to.
pub const TF32: StorageType = StorageType::Scalar(ElemType::Float(FloatKind::TF32));

/// Bytes that the memory of tensor cores' operands is aligned to.
const ALIGNMENT: usize = 32;

/// The product of one instruction of tensor cores, `[m, k]` times `[k, n]`, by all units of a plane (warp).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorCores {
    m: usize,
    n: usize,
    k: usize,
    plane: usize,
}

impl TensorCores {
    /// The largest products of operands of this type with f32 sums that a cube of `SIDE * SIDE` units can
    /// make a tile of `vectors` times `TILE` columns of, if the device has any.
    ///
    /// None of a device whose planes differ in size, for a plane is `plane` units that follow each other;
    /// none of ROCm, whose products CubeCL lists for processors without any and lays out by the first
    /// dimension of a cube; and none of bf16 of CUDA before 8.0, for which CubeCL lists products that there are not.
    pub fn of<R: CubeRuntime>(
        client: &ComputeClient<R>,
        operand: StorageType,
        vectors: usize,
    ) -> Option<Self> {
        let properties = client.properties();
        let plane = properties.hardware.plane_size_max as usize;
        if R::name(client) == "hip"
            || properties.hardware.plane_size_min as usize != plane
            || properties.hardware.max_shared_memory_size < shared_memory(operand, vectors)
        {
            return None;
        }
        let listed = &properties.features.matmul.cmma;
        let is_of = |config: &MmaConfig, operand: StorageType| {
            config.a_type == operand
                && config.b_type == operand
                && config.cd_type == DType::F32.into()
        };
        // CUDA has products of both from 8.0 on.
        let is_before_bf16 =
            R::name(client) == "cuda" && !listed.iter().any(|config| is_of(config, TF32));
        if is_before_bf16 && operand == DType::BF16.into() {
            return None;
        }
        let of_type = listed.iter().filter(|config| is_of(config, operand));
        of_type
            .map(|config| {
                let [m, n, k] = [config.m, config.n, config.k].map(|side| side as usize);
                Self { m, n, k, plane }
            })
            .filter(|cores| cores.fit(vectors))
            .max_by_key(|cores| (cores.m.min(cores.n), cores.k))
    }

    /// True if every plane of a cube has as many products in one column of the tile.
    fn fit(&self, vectors: usize) -> bool {
        let divide =
            [(SIDE * SIDE, self.plane), (TILE, self.m), (TILE, self.n), (DEPTH_OF_CORES, self.k)]
                .iter()
                .all(|(whole, part)| whole.is_multiple_of(*part));
        if !divide || !self.m.is_multiple_of(4) || !self.n.is_multiple_of(4) {
            return false;
        }
        let (planes, products) = (SIDE * SIDE / self.plane, self.rows() * self.columns(vectors));
        products.is_multiple_of(planes) && self.rows().is_multiple_of(self.each(vectors))
    }

    /// Products below each other in a tile.
    fn rows(&self) -> usize {
        TILE / self.m
    }

    /// Products side by side in a tile.
    fn columns(&self, vectors: usize) -> usize {
        vectors * TILE / self.n
    }

    /// Products of one plane.
    fn each(&self, vectors: usize) -> usize {
        self.rows() * self.columns(vectors) * self.plane / (SIDE * SIDE)
    }
}

/// Bytes of shared memory that a tile takes at most with tensor cores, of operands of this type.
fn shared_memory(operand: StorageType, vectors: usize) -> usize {
    let row = 4 * (vectors + 1) * (SIDE + 2) * operand.size();
    DEPTH_OF_CORES * row + TILE * 4 * (SIDE + 2) * size_of::<f32>()
}

/// Rows of operands in shared memory at once.
fn depth(cores: Option<TensorCores>) -> usize {
    match cores {
        Some(_) => DEPTH_OF_CORES,
        None => SIDE,
    }
}

/// A cube's tile `[TILE, vectors * TILE]` of a sum of products, and what it is at work on: of the left
/// matrix a tile `[depth, TILE]`, its transpose, and of the right one `[depth, vectors * TILE]`.
///
/// `S` is what is multiplied: f32 by units, another type by tensor cores.
#[derive(CubeType)]
pub struct Tiles<S: Scalar> {
    left: SharedMemory<Vector<S, Four>>,
    right: SharedMemory<Vector<S, Four>>,
    sums: Array<Vector<f32, Four>>,
    of_cores: Sequence<cmma::Matrix<f32>>,
    #[cube(comptime)]
    vectors: usize,
    #[cube(comptime)]
    cores: Option<TensorCores>,
}

/// Vectors of a row of a tile in shared memory. In the last ones nothing is: so that neighbours do not write
/// to one bank, and an even number for tensor cores, whose rows begin at multiples of 16 bytes.
fn row(vectors: usize, cores: Option<TensorCores>) -> usize {
    vectors * SIDE + if cores.is_some() { 2 } else { 1 }
}

#[cube]
impl<S: Scalar> Tiles<S> {
    /// Zeros in every place of the sums.
    pub fn new(#[comptime] vectors: usize, #[comptime] cores: Option<TensorCores>) -> Tiles<S> {
        let depth = comptime!(depth(cores));
        let mut sums = Array::<Vector<f32, Four>>::new(comptime!(4 * vectors));
        let mut of_cores = Sequence::new();
        if comptime!(cores.is_some()) {
            let cores = comptime!(cores.expect("just checked"));
            #[unroll]
            for _ in 0..comptime!(cores.each(vectors)) {
                of_cores.push(cmma::Matrix::<f32>::from_value(
                    cmma::MatrixIdent::Accumulator,
                    comptime!(cores.m),
                    comptime!(cores.n),
                    comptime!(cores.k),
                    cmma::MatrixLayout::Undefined,
                    0.0f32,
                ));
            }
        } else {
            #[unroll]
            for place in 0..comptime!(4 * vectors) {
                sums[place] = Vector::new(0.0f32);
            }
        }
        Tiles::<S> {
            left: SharedMemory::new_aligned(comptime!(depth * row(1, cores)), ALIGNMENT),
            right: SharedMemory::new_aligned(comptime!(depth * row(vectors, cores)), ALIGNMENT),
            sums,
            of_cores,
            vectors,
            cores,
        }
    }

    /// Rows of operands that are in the tiles at once.
    #[allow(unused)]
    pub fn depth(&self) -> comptime_type!(usize) {
        intrinsic!(|_| depth(self.cores))
    }

    /// Puts four elements of a column of the left matrix into the tile: places from `4 * four` on of column `k`.
    /// The caller chooses the row of a product that a place holds.
    pub fn put_left(&mut self, k: usize, four: usize, elements: Vector<S, Four>) {
        self.left[k * comptime!(row(1, self.cores)) + four] = elements;
    }

    /// Puts four elements of row `k` of the right matrix into the tile, places from `4 * four` on. The caller chooses the
    /// column of a product that a place holds; see [`interleaved`].
    pub fn put_right(&mut self, k: usize, four: usize, elements: Vector<S, Four>) {
        self.right[k * comptime!(row(self.vectors, self.cores)) + four] = elements;
    }

    /// Adds the product of the two tiles to the sums, once all units have put theirs; these are free again
    /// when it ends.
    pub fn multiply(&mut self) {
        sync_cube();
        if comptime!(self.cores.is_some()) {
            self.by_cores(comptime!(self.cores.expect("just checked")));
        } else {
            self.by_units();
        }
        sync_cube();
    }

    fn by_units(&mut self) {
        let across = UNIT_POS as usize % SIDE;
        let down = UNIT_POS as usize / SIDE;
        let (vectors, cores) = comptime!((self.vectors, self.cores));
        #[unroll]
        for k in 0..SIDE {
            let left = self.left[comptime!(k * row(1, cores)) + down];
            let left = Vector::<f32, Four>::cast_from(left);
            #[unroll]
            for vector in 0..vectors {
                let right = self.right[comptime!(k * row(vectors, cores) + vector * SIDE) + across];
                let right = Vector::<f32, Four>::cast_from(right);
                #[unroll]
                for place in 0..4usize {
                    self.sums[comptime!(place * vectors + vector)] +=
                        right * Vector::new(left[place]);
                }
            }
        }
    }

    fn by_cores(&mut self, #[comptime] cores: TensorCores) {
        let vectors = comptime!(self.vectors);
        let (m, n, k) = comptime!((cores.m, cores.n, cores.k));
        let left_row = comptime!(row(1, Some(cores)));
        let right_row = comptime!(row(vectors, Some(cores)));
        let (first_row, column) = first_product(vectors, cores);
        #[unroll]
        for step in 0..comptime!(DEPTH_OF_CORES / k) {
            // SAFETY: loaded before it is read, as the left one is.
            let right = unsafe {
                cmma::Matrix::<S>::uninitialized(
                    cmma::MatrixIdent::B,
                    m,
                    n,
                    k,
                    cmma::MatrixLayout::RowMajor,
                )
            };
            let from = comptime!(step * k * right_row) + column * comptime!(n / 4);
            let memory = self.right.slice(from, comptime!(DEPTH_OF_CORES * right_row));
            cmma::load(&right, &memory, comptime!(4 * right_row as u32));
            #[unroll]
            for product in 0..comptime!(cores.each(vectors)) {
                let left = unsafe {
                    cmma::Matrix::<S>::uninitialized(
                        cmma::MatrixIdent::A,
                        m,
                        n,
                        k,
                        cmma::MatrixLayout::ColMajor,
                    )
                };
                let from =
                    comptime!(step * k * left_row) + (first_row + product) * comptime!(m / 4);
                let memory = self.left.slice(from, comptime!(DEPTH_OF_CORES * left_row));
                cmma::load(&left, &memory, comptime!(4 * left_row as u32));
                let sum = self.of_cores.index(product);
                cmma::execute(&left, &right, sum, sum);
            }
        }
    }

    /// The sums of a unit at `(across, down)` in the square: of the rows at places `4 * down` and the three after it, each
    /// in `vectors` vectors `TILE` columns apart, of which the first has the column at place `4 * across` first.
    pub fn sums(self) -> Array<Vector<f32, Four>> {
        let mut sums = self.sums;
        if comptime!(self.cores.is_some()) {
            let cores = comptime!(self.cores.expect("just checked"));
            let vectors = comptime!(self.vectors);
            let across = UNIT_POS as usize % SIDE;
            let down = UNIT_POS as usize / SIDE;
            let length = comptime!(TILE * row(1, Some(cores)));
            let mut memory = SharedMemory::<Vector<f32, Four>>::new_aligned(length, ALIGNMENT);
            let (first_row, column) = first_product(vectors, cores);
            let (of_vector, column) = (column * cores.n / TILE, column * cores.n % TILE);
            #[unroll]
            for vector in 0..vectors {
                if of_vector == vector {
                    #[unroll]
                    for product in 0..comptime!(cores.each(vectors)) {
                        let to = (first_row + product) * comptime!(cores.m * row(1, Some(cores)));
                        let mut memory = memory.slice_mut(to + column / 4, length);
                        let sum = self.of_cores.index(product);
                        let layout = cmma::MatrixLayout::RowMajor;
                        let pitch = comptime!(4 * row(1, Some(cores)) as u32);
                        cmma::store(&mut memory, sum, pitch, layout);
                    }
                }
                sync_cube();
                #[unroll]
                for place in 0..4usize {
                    sums[comptime!(place * vectors + vector)] =
                        memory[(down * 4 + place) * comptime!(row(1, Some(cores))) + across];
                }
                sync_cube();
            }
        }
        sums
    }
}

/// The row or column within `TILE` whose place in a tile is `4 * four + element`: units with neighbouring fours have
/// neighbouring rows or columns, so that they read and write whole sectors of memory.
#[cube]
pub fn interleaved(four: usize, #[comptime] element: usize) -> usize {
    comptime!(element * SIDE) + four
}

/// Place along the depth and four of this unit, for tiles that are written along the depth: units that write at once
/// reach each bank of shared memory once, those of a warp have 16 neighbouring places.
#[cube]
pub fn along_depth() -> (usize, usize) {
    let unit = UNIT_POS as usize;
    (unit % 8 + unit / 16 % 2 * 8, unit / 8 % 2 + unit / 32 * 2)
}

/// Row and column of the first product of this unit's plane among those of a tile; the others follow below.
#[cube]
fn first_product(#[comptime] vectors: usize, #[comptime] cores: TensorCores) -> (usize, usize) {
    let rows = comptime!(cores.rows());
    let first = UNIT_POS as usize / comptime!(cores.plane) * comptime!(cores.each(vectors));
    (first % rows, first / rows)
}

#[cfg(test)]
mod tests {
    use super::TensorCores;

    #[test]
    fn every_plane_has_its_products_in_one_column() {
        let fits =
            |[m, n, k]: [usize; 3], plane, vectors| TensorCores { m, n, k, plane }.fit(vectors);
        // CUDA's of 16 bits and of TF32, and those of software Vulkan.
        for (product, plane) in [([16; 3], 32), ([16, 16, 8], 32), ([8; 3], 8)] {
            assert!(fits(product, plane, 1) && fits(product, plane, 2), "{product:?} by {plane}");
        }
        // Eight products of a plane, and four below each other.
        assert!(fits([16; 3], 64, 1) && !fits([16; 3], 64, 2));
        // More planes than products.
        assert!(!fits([32, 32, 16], 32, 1));
        // Deeper than what is in shared memory at once.
        assert!(!fits([16, 16, 64], 32, 1));
    }
}
