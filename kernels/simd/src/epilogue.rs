//! Element-wise operations on a product of matrices while its rows are in the cache.

use super::gelu::{gelu, quick_gelu};
use super::simd::Simd;

/// Operation on the sums of a product.
#[derive(Clone, Copy)]
pub enum Epilogue<'a> {
    /// Itself.
    Sum,
    /// `clamp(sum * scale + shift + add)`: by row scale and shift, by element what is added.
    Rows {
        /// `[rows]`.
        scale: &'a [f32],
        /// `[rows]`.
        shift: &'a [f32],
        /// Least and largest result.
        bounds: [f32; 2],
        /// `[rows, columns]`.
        add: Option<&'a [f32]>,
    },
    /// `activation(sum + bias) * scale + add`: by column bias and scale, by element what is added.
    Columns {
        /// `[columns]`.
        bias: &'a [f32],
        /// Applied to the sum with its bias.
        activation: Activation,
        /// Scale `[columns]`, ones if there is none, and what is added, `[rows, columns]`.
        residual: Option<(Option<&'a [f32]>, &'a [f32])>,
    },
}

/// Activation of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    Identity,
    /// `x Phi(x)`, with the distribution function of the normal distribution.
    Gelu,
    /// `x sigmoid(1.702 x)`.
    QuickGelu,
}

impl Epilogue<'_> {
    /// Panics unless there is enough for so many rows and columns.
    pub fn check(&self, rows: usize, columns: usize) {
        let fits = match self {
            Self::Sum => true,
            Self::Rows { scale, shift, add, .. } => {
                scale.len() >= rows
                    && shift.len() >= rows
                    && add.is_none_or(|add| add.len() >= rows * columns)
            }
            Self::Columns { bias, residual, .. } => {
                bias.len() == columns
                    && residual.is_none_or(|(scale, add)| {
                        scale.is_none_or(|scale| scale.len() == columns)
                            && add.len() >= rows * columns
                    })
            }
        };
        assert!(
            fits,
            "a product of {rows} rows and {columns} columns needs more than its epilogue has"
        );
    }

    /// The map of a part of a row, of `width` columns from `first` on, for sums in registers; `None` for epilogues that
    /// [`row`](Self::row) does.
    #[inline(always)]
    pub fn row_map<S: Simd>(
        &self,
        simd: S,
        row: usize,
        [first, columns]: [usize; 2],
        width: usize,
    ) -> Option<RowMap<'_, S>> {
        let Self::Rows { scale, shift, bounds, add } = *self else { return None };
        Some(RowMap {
            line: [scale[row], shift[row]].map(|value| simd.splat(value)),
            bounds: bounds.map(|value| simd.splat(value)),
            add: add.map(|add| &add[row * columns + first..][..width]),
        })
    }

    /// Completes the part of a row that begins with the column `first` of so many, but for what was done in
    /// registers.
    #[inline(always)]
    pub fn row<S: Simd>(&self, simd: S, row: usize, [first, columns]: [usize; 2], out: &mut [f32]) {
        let Self::Columns { bias, activation, residual } = *self else { return };
        let width = out.len();
        let bias = &bias[first..][..width];
        let residual = residual.map(|(scale, add)| {
            let scale = scale.map(|scale| &scale[first..][..width]);
            (scale, &add[row * columns + first..][..width])
        });
        for at in (0..width).step_by(S::WIDTH) {
            let count = (width - at).min(S::WIDTH);
            // SAFETY: so many floats are left of the row, and of what is as long.
            unsafe {
                let place = out.as_mut_ptr().add(at);
                let sum = simd.read_up_to(place, count);
                let x = simd.add(sum, simd.read_up_to(bias.as_ptr().add(at), count));
                let y = match activation {
                    Activation::Identity => x,
                    Activation::Gelu => gelu(simd, x),
                    Activation::QuickGelu => quick_gelu(simd, x),
                };
                let done = match residual {
                    None => y,
                    Some((None, add)) => simd.add(y, simd.read_up_to(add.as_ptr().add(at), count)),
                    Some((Some(scale), add)) => {
                        let scale = simd.read_up_to(scale.as_ptr().add(at), count);
                        simd.mul_add(y, scale, simd.read_up_to(add.as_ptr().add(at), count))
                    }
                };
                simd.write_up_to(place, count, done);
            }
        }
    }
}

/// [`Epilogue::Rows`] for a part of one row.
pub struct RowMap<'a, S: Simd> {
    /// Scale and shift.
    line: [S::Vector; 2],
    bounds: [S::Vector; 2],
    add: Option<&'a [f32]>,
}

impl<S: Simd> RowMap<'_, S> {
    /// Maps the `count` sums from place `at` of the part on.
    ///
    /// # Safety
    /// The part has so many from there on, and a vector has as many or more.
    #[inline(always)]
    pub unsafe fn applied(&self, simd: S, sums: S::Vector, at: usize, count: usize) -> S::Vector {
        let ([scale, shift], [least, most]) = (self.line, self.bounds);
        let value = simd.mul_add(sums, scale, shift);
        let value = match self.add {
            // SAFETY: what is added is as long as the part.
            Some(add) => unsafe { simd.add(value, simd.read_up_to(add.as_ptr().add(at), count)) },
            None => value,
        };
        simd.min(simd.max(value, least), most)
    }
}
