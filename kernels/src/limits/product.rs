//! Products of two square matrices by kernels of cubek.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::StorageType;
use cubecl::prelude::*;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::{Strategy, launch_ref};
use cubek::std::InputBinding;

use super::cube::{checked, fresh, read};
use super::strategy::{Needs, name, strategies};
use super::timing::{each, failed, settled};
use super::{LimitError, ProductTime, ProductType, Strategies};
use crate::cube::{elementwise, launch, unit_below};

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
