//! Products of two square matrices by kernels of cubek.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::StorageType;
use cubecl::prelude::*;
use cubek::matmul::components::tile::TileMatmulKind;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::{Strategy, launch_ref};
use cubek::matmul::routines::BlueprintStrategy::Inferred;
use cubek::matmul::routines::TileSizeSelection;
use cubek::matmul::routines::double_unit::DoubleUnitSelectionArgs;
use cubek::matmul::routines::ordered_double_buffering::OrderedSelectionArgs;
use cubek::std::InputBinding;

use super::cube::{checked, each, failed, fresh, read, settled};
use super::{LimitError, ProductTime, ProductType};
use crate::cube::{elementwise, launch, unit_below};

/// The algorithm for products of this type: the one that is expected to be fastest for large matrices on every
/// device that has the units for it. On tensor cores that is double buffering in a fixed order, the best in
/// cubek's benches that needs no unit of Nvidia's newest devices alone.
fn strategy(of: ProductType) -> Strategy {
    match of {
        ProductType::F32 => Strategy::DoubleUnit(Inferred(DoubleUnitSelectionArgs {
            tile_size: TileSizeSelection::MaxTileSize,
        })),
        ProductType::Tf32 | ProductType::F16 | ProductType::Bf16 => {
            Strategy::OrderedDoubleCmma(Inferred(OrderedSelectionArgs {
                partition_k: Some(2),
                row_count: Some(8),
                rows_per_plane: Some(2),
                tile_matmul: TileMatmulKind::Cmma,
            }))
        }
    }
}

/// Two matrices and their product.
struct Matrices<R: CubeRuntime> {
    of: ProductType,
    size: usize,
    left: CubeTensor<R>,
    right: CubeTensor<R>,
    product: CubeTensor<R>,
}

/// Measures what [`product_time`](super::product_time) says.
pub fn time<R: CubeRuntime>(
    device: &R::Device,
    of: ProductType,
    size: usize,
    seconds: f64,
) -> Result<ProductTime, LimitError> {
    let refused = |reason: String| LimitError::NoProduct { of, reason };
    let client = R::client(device);
    if of != ProductType::F32 && client.features().matmul.cmma.is_empty() {
        return Err(refused("the device has no tensor cores".to_owned()));
    }
    let strategy = strategy(of);
    let name = strategy.to_string();
    let matrices = Matrices::<R>::new(device, of, size);
    let first = matrices.launch(&strategy).and_then(|()| settled(&client));
    first.map_err(|error| refused(format!("{name}: {error}")))?;
    [0, size - 1].into_iter().try_for_each(|row| matrices.check(row))?;
    let seconds = each(&client, seconds, || matrices.launch(&strategy))?;
    // All names begin alike.
    let strategy = name.strip_prefix("matmul_").unwrap_or(&name).to_owned();
    Ok(ProductTime { size, strategy, seconds })
}

impl<R: CubeRuntime> Matrices<R> {
    fn new(device: &R::Device, of: ProductType, size: usize) -> Self {
        let matrix = || fresh::<R>(device, [size, size], of.dtype());
        let filled = |side: usize| {
            let matrix = matrix();
            // SAFETY: the matrix has `size * size` elements, at which units stop.
            unsafe {
                launch!(fill_kernel, elementwise(&matrix.client, size * size);
                    matrix; size, side, of.dtype().into());
            }
            matrix
        };
        Self { of, size, left: filled(0), right: filled(1), product: matrix() }
    }

    fn launch(&self, strategy: &Strategy) -> Result<(), LimitError> {
        let dtype = self.of.dtype().into();
        let globals = MatmulGlobalElems { lhs: dtype, rhs: dtype, out: dtype };
        let [left, right, product] =
            [&self.left, &self.right, &self.product].map(|matrix| matrix.clone().binding());
        launch_ref(
            strategy,
            &self.left.client,
            InputBinding::new(left, dtype),
            InputBinding::new(right, dtype),
            product,
            &mut MatmulElems::from_globals(&globals),
        )
        .map_err(failed)
    }

    /// Compares a row of the product with sums in f32.
    fn check(&self, row: usize) -> Result<(), LimitError> {
        let size = self.size;
        let values = fresh::<R>(&self.left.device, [size], DType::F32);
        // SAFETY: `row` is one of the product's, and units stop at its last column.
        unsafe {
            launch!(row_kernel, elementwise(&self.left.client, size);
                self.product, values; size, row, self.of.dtype().into());
        }
        let values = read(values)?;
        for column in [0, size / 2, size - 1] {
            let terms = (0..size).map(|k| {
                let [left, right] = [(0, row, k), (1, k, column)]
                    .map(|(side, row, column)| element(row * size + column, row, side));
                left * right
            });
            let expected: f32 = terms.sum();
            let what = format!("element {row}, {column} of the product");
            // All terms and sums are exact in f32; the result is rounded to the type.
            checked(what, values[column], expected, expected.abs() / 128.0)?;
        }
        Ok(())
    }
}

/// An element of a matrix: one of five quarters around a quarter, which no type rounds, so that rows and
/// columns differ and sums stay in the range of f16.
fn element(place: usize, row: usize, side: usize) -> f32 {
    ((place * 7 + row * 3 + side * 2) % 5) as f32 / 4.0 - 0.25
}

/// Fills a matrix with what [`element`] gives.
#[cube(launch_unchecked)]
fn fill_kernel<F: Float>(
    matrix: &mut Array<F>,
    size: usize,
    side: usize,
    #[define(F)] _dtype: StorageType,
) {
    let at = unit_below(size * size);
    let residue = (at * 7 + at / size * 3 + side * 2) % 5;
    matrix[at] = F::cast_from(f32::cast_from(residue) / 4.0 - 0.25);
}

#[cube(launch_unchecked)]
fn row_kernel<F: Float>(
    matrix: &Array<F>,
    values: &mut Array<f32>,
    size: usize,
    row: usize,
    #[define(F)] _dtype: StorageType,
) {
    let at = unit_below(size);
    values[at] = f32::cast_from(matrix[row * size + at]);
}
