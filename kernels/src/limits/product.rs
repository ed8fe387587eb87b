//! Products of two square matrices by kernels of cubek.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::features::{Features, Tma};
use cubecl::ir::StorageType;
use cubecl::prelude::*;
use cubek::matmul::components::tile::TileMatmulKind;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::{Strategy, launch_ref};
use cubek::matmul::routines::BlueprintStrategy::Inferred;
use cubek::matmul::routines::TileSizeSelection;
use cubek::matmul::routines::double_buffering::DoubleBufferingArgs;
use cubek::matmul::routines::double_unit::DoubleUnitSelectionArgs;
use cubek::matmul::routines::ordered_double_buffering::OrderedSelectionArgs;
use cubek::matmul::routines::simple::SimpleArgs;
use cubek::matmul::routines::simple_unit::SimpleUnitSelectionArgs;
use cubek::std::InputBinding;

use super::cube::{checked, each, failed, fresh, read, settled};
use super::{LimitError, ProductTime, ProductType, Strategies};
use crate::cube::{elementwise, launch, unit_below};

/// What a way of computing needs of the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Nothing but multiplication and addition.
    Units,
    /// Tensor cores.
    TensorCores,
    /// Tensor cores, and a unit that copies tiles to shared memory.
    Tma,
}

impl Needs {
    /// What of it the device lacks.
    fn lacking(self, features: &Features) -> Option<&'static str> {
        let matmul = &features.matmul;
        match self {
            Self::Units => None,
            _ if matmul.cmma.is_empty() && matmul.mma.is_empty() => Some("no tensor cores"),
            Self::Tma if !features.tma.contains(Tma::Base) => Some("no tensor memory accelerator"),
            _ => None,
        }
    }
}

/// The ways of computing products of this type, those first that are expected to be fastest for large
/// matrices: Burn's own search gives tiles that are copied by the tensor memory accelerator the highest
/// priority, and cubek's benches have ordered double buffering as the best of the others. Instructions on
/// single tiles (`mma`) go before cooperative ones (`cmma`), whose layout in shared memory is not swizzled.
fn strategies(of: ProductType) -> Vec<(Needs, Strategy)> {
    let units = [
        Strategy::DoubleUnit(Inferred(DoubleUnitSelectionArgs {
            tile_size: TileSizeSelection::MaxTileSize,
        })),
        Strategy::SimpleUnit(Inferred(SimpleUnitSelectionArgs {
            tile_size: TileSizeSelection::MaxTileSize,
        })),
    ];
    let units = units.map(|strategy| (Needs::Units, strategy));
    match of {
        ProductType::F32 => units.into(),
        ProductType::Tf32 => tensor_cores().into(),
        ProductType::F16 | ProductType::Bf16 => tensor_cores().into_iter().chain(units).collect(),
    }
}

fn tensor_cores() -> [(Needs, Strategy); 9] {
    // The kind of tile is given by the name of the strategy.
    let tile_matmul = TileMatmulKind::Cmma;
    let rows = || Inferred(SimpleArgs { multi_rows: true, tile_matmul });
    let rows_of_tma = || Inferred(SimpleArgs { multi_rows: true, tile_matmul });
    let double = |specialized| Inferred(DoubleBufferingArgs { specialized, tile_matmul });
    let ordered = Inferred(OrderedSelectionArgs {
        partition_k: Some(2),
        row_count: Some(8),
        rows_per_plane: Some(2),
        tile_matmul,
    });
    [
        (Needs::Tma, Strategy::SpecializedTmaMma(Inferred(().into()))),
        (Needs::Tma, Strategy::SimpleTmaMma(rows_of_tma())),
        (Needs::Tma, Strategy::SpecializedTmaCmma(Inferred(().into()))),
        (Needs::Tma, Strategy::SimpleTmaCmma(rows_of_tma())),
        (Needs::TensorCores, Strategy::SpecializedCyclicMma(Inferred(().into()))),
        (Needs::TensorCores, Strategy::OrderedDoubleCmma(ordered)),
        (Needs::TensorCores, Strategy::DoubleCyclicMma(double(true))),
        (
            Needs::TensorCores,
            Strategy::DoubleTilewiseCmma(Inferred(DoubleBufferingArgs {
                specialized: false,
                tile_matmul,
            })),
        ),
        (Needs::TensorCores, Strategy::SimpleCyclicCmma(rows())),
    ]
}

/// Without what all of them begin with.
fn name(strategy: &Strategy) -> String {
    let name = strategy.to_string();
    name.strip_prefix("matmul_").unwrap_or(&name).to_owned()
}

/// Two matrices and their product.
struct Matrices<R: CubeRuntime> {
    of: ProductType,
    size: usize,
    left: CubeTensor<R>,
    right: CubeTensor<R>,
    product: CubeTensor<R>,
}

/// See [`product_times`](super::product_times).
pub fn times<R: CubeRuntime>(
    device: &R::Device,
    of: ProductType,
    size: usize,
    wanted: Strategies,
    seconds: f64,
) -> Result<Vec<ProductTime>, LimitError> {
    let matrices = Matrices::<R>::new(device, of, size);
    let features = matrices.left.client.features();
    let (mut times, mut refused) = (Vec::<ProductTime>::new(), Vec::new());
    let mut on_tensor_cores = false;
    for (needs, strategy) in strategies(of) {
        let enough = match wanted {
            Strategies::First => !times.is_empty(),
            Strategies::All => needs == Needs::Units && on_tensor_cores,
        };
        if enough {
            break;
        }
        let named = name(&strategy);
        if let Some(lacking) = needs.lacking(features) {
            refused.push(format!("{named}: {lacking}"));
            continue;
        }
        match matrices.time(&strategy, seconds) {
            Ok(seconds) => {
                on_tensor_cores |= needs != Needs::Units;
                times.push(ProductTime { size, strategy: named, seconds });
            }
            Err(reason) => {
                log::warn!("products of {of}, {size} x {size}: {named} is left out: {reason}");
                refused.push(format!("{named}: {reason}"));
            }
        }
    }
    match times.is_empty() {
        true => Err(LimitError::NoProduct { of, reasons: refused.join("; ") }),
        false => Ok(times),
    }
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

    /// Seconds of a product, once it has been found right.
    fn time(&self, strategy: &Strategy, seconds: f64) -> Result<f64, LimitError> {
        self.launch(strategy)?;
        settled(&self.left.client)?;
        [0, self.size - 1].into_iter().try_for_each(|row| self.check(row))?;
        each(&self.left.client, seconds, || self.launch(strategy))
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

    /// Whether a row of the product is right.
    fn check(&self, row: usize) -> Result<(), LimitError> {
        let size = self.size;
        let found = fresh::<R>(&self.left.device, [size], DType::F32);
        // SAFETY: `row` is one of the product's, and units stop at its last column.
        unsafe {
            launch!(row_kernel, elementwise(&self.left.client, size);
                self.product, found; size, row, self.of.dtype().into());
        }
        let found = read(found)?;
        for column in [0, size / 2, size - 1] {
            let terms = (0..size).map(|k| {
                let [left, right] = [(0, row, k), (1, k, column)]
                    .map(|(side, row, column)| element(row * size + column, row, side));
                left * right
            });
            let wanted: f32 = terms.sum();
            let what = format!("element {row}, {column} of the product");
            // All terms and sums are exact in f32; the result is rounded to the type.
            checked(what, found[column], wanted, wanted.abs() / 128.0)?;
        }
        Ok(())
    }
}

/// An element of a matrix: one of five quarters around a quarter, which no type rounds, so that rows and
/// columns differ and sums stay in the range of f16.
fn element(place: usize, row: usize, side: usize) -> f32 {
    ((place * 7 + row * 3 + side * 2) % 5) as f32 / 4.0 - 0.25
}

/// As [`element`].
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
    found: &mut Array<f32>,
    size: usize,
    row: usize,
    #[define(F)] _dtype: StorageType,
) {
    let at = unit_below(size);
    found[at] = f32::cast_from(matrix[row * size + at]);
}
