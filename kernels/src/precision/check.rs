use burn::tensor::DType;
use burn::tensor::backend::{Backend, DTypeUsage};

use super::Precision;
use crate::layers::LayerTable;
use crate::registry;

/// The presence of units for products of matrices of a type on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceleration {
    /// The device says that it has them.
    Units,
    /// The device does not say so: expect no speed of a low type, but of the fused stack on a processor with AMX.
    None,
}

/// A precision that a backend does not compute in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum PrecisionError {
    /// The data type of the products is not there.
    #[error("{backend} does not compute in {dtype}")]
    Unsupported { backend: String, dtype: &'static str },
}

impl Precision {
    /// The units on which products of this precision run on `device`, if they run there.
    ///
    /// # Conventions
    /// The answer is the backend's own. Candle tells that it computes in `bf16`, though it has no
    /// matrix products of it on a CPU: [`product`](Self::product) needs none there, unless plain
    /// operations are asked for.
    ///
    /// # Errors
    /// [`PrecisionError::Unsupported`], as of NdArray in both low types, and of every device without tensor
    /// cores in [`Tf32`](Self::Tf32).
    pub fn check<B: Backend>(self, device: &B::Device) -> Result<Acceleration, PrecisionError> {
        let unsupported = || {
            let (backend, dtype) = (B::name(device), self.dtype());
            Err(PrecisionError::Unsupported { backend, dtype })
        };
        if self == Self::Tf32 {
            let table = registry::table::<LayerTable<B>>();
            return match table.is_some_and(|table| (table.has_tf32)(device)) {
                true => Ok(Acceleration::Units),
                false => unsupported(),
            };
        }
        let dtype = self.low().map_or(DType::F32, DType::from);
        let usage = B::dtype_usage(device, dtype);
        if !usage.is_superset(DTypeUsage::Storage | DTypeUsage::Arithmetic) {
            return unsupported();
        }
        match usage.contains(DTypeUsage::Accelerated) {
            true => Ok(Acceleration::Units),
            false => Ok(Acceleration::None),
        }
    }
}
