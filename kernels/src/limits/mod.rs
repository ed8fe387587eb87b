//! The limits of an accelerator: how fast it takes launches, copies, and multiplies matrices.
//!
//! All is measured by kernels alone, without Burn's operations around them, several in a row and timed
//! together. A host has no launches, and is measured by plain operations.

#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "cube")]
mod product;

use std::fmt;

use burn::tensor::DType;
use burn::tensor::backend::Backend;

use crate::registry;

/// Time of a launch of a kernel that does next to nothing, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaunchTime {
    /// On the host, until the next one can be issued.
    pub issue: f64,
    /// Until it is done, of many in a row with one wait at their end.
    pub done: f64,
}

/// Time of a copy of a large array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyTime {
    /// Bytes of the array; as many are read as are written.
    pub bytes: u64,
    /// Seconds of one copy, the mean of several in a row.
    pub seconds: f64,
}

impl CopyTime {
    /// Bytes read and written a second.
    pub fn rate(&self) -> f64 {
        2.0 * self.bytes as f64 / self.seconds
    }
}

/// The type that products of two matrices are computed in; sums are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProductType {
    /// In full, without tensor cores.
    F32,
    /// Elements of f32, of which tensor cores take the first ten bits of the mantissa.
    Tf32,
    /// Elements of f16.
    F16,
    /// Elements of bf16.
    Bf16,
}

impl ProductType {
    /// All, widest first.
    pub const ALL: [Self; 4] = [Self::F32, Self::Tf32, Self::F16, Self::Bf16];

    /// The type of the elements in memory.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 | Self::Tf32 => DType::F32,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::BF16,
        }
    }
}

impl fmt::Display for ProductType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        })
    }
}

/// Time of the product of two square matrices.
#[derive(Clone, Debug, PartialEq)]
pub struct ProductTime {
    /// Rows and columns.
    pub size: usize,
    /// cubek's name of the algorithm.
    pub strategy: String,
    /// Seconds of one product, the mean of several in a row.
    pub seconds: f64,
}

impl ProductTime {
    /// Multiplications and additions a second.
    pub fn rate(&self) -> f64 {
        2.0 * (self.size as f64).powi(3) / self.seconds
    }
}

/// An accelerator whose limits can be measured, on this runtime.
#[cfg(feature = "cube")]
pub trait MeasuredLimits: Backend {
    /// The runtime of its kernels.
    type Runtime: burn_cubecl::CubeRuntime<CubeDevice = Self::Device>;
}

#[cfg(feature = "fusion")]
impl<B: burn_fusion::FusionBackend + MeasuredLimits> MeasuredLimits for burn_fusion::Fusion<B> {
    type Runtime = B::Runtime;
}

/// Reasons for which a limit has no number.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum LimitError {
    /// The backend is no accelerator that is known here.
    #[error("the backend launches no kernels")]
    NoKernels,
    /// The device does not compute in this type, or not in this way.
    #[error("no products of {of} are computed there: {reason}")]
    NoProduct { of: ProductType, reason: String },
    /// The device failed, refused a kernel, or computed something else.
    #[error("the device failed: {reason}")]
    Failed { reason: String },
}

// Unit tests are about the host, and register no accelerator.
#[cfg_attr(any(test, not(feature = "cube")), allow(dead_code))]
pub(crate) struct LimitTable<B: Backend> {
    launch_time: fn(&B::Device, f64) -> Result<LaunchTime, LimitError>,
    copy_time: fn(&B::Device, u64, f64) -> Result<CopyTime, LimitError>,
    product_time: fn(&B::Device, ProductType, usize, f64) -> Result<ProductTime, LimitError>,
}

#[cfg(feature = "cube")]
impl<B: MeasuredLimits> LimitTable<B> {
    #[cfg_attr(test, allow(dead_code))]
    pub(crate) fn new() -> Self {
        Self {
            launch_time: cube::launches::<B::Runtime>,
            copy_time: cube::copies::<B::Runtime>,
            product_time: product::time::<B::Runtime>,
        }
    }
}

/// The time of a launch, measured for about so many seconds.
///
/// # Errors
/// [`LimitError::NoKernels`] of a host and of every backend that is not registered, autodiff among them;
/// others if the device fails.
pub fn launch_time<B: Backend>(device: &B::Device, seconds: f64) -> Result<LaunchTime, LimitError> {
    (table::<B>()?.launch_time)(device, seconds)
}

/// The time of a copy of `bytes`, at most what the device has in one array, from one array into another,
/// measured for about so many seconds. Launches are not subtracted: the next one is issued while a copy of a
/// large array runs.
///
/// # Errors
/// The errors of [`launch_time`].
pub fn copy_time<B: Backend>(
    device: &B::Device,
    bytes: u64,
    seconds: f64,
) -> Result<CopyTime, LimitError> {
    (table::<B>()?.copy_time)(device, bytes, seconds)
}

/// The time of the product of two square matrices by one algorithm a type, measured for about `seconds`. Its
/// values are checked: other ones are [`LimitError::Failed`].
///
/// # Errors
/// The errors of [`launch_time`], and [`LimitError::NoProduct`] where the device refuses the type or the algorithm.
pub fn product_time<B: Backend>(
    device: &B::Device,
    of: ProductType,
    size: usize,
    seconds: f64,
) -> Result<ProductTime, LimitError> {
    let table = table::<B>()?;
    if !B::supports_dtype(device, of.dtype()) {
        let reason = "the device does not compute in it".to_owned();
        return Err(LimitError::NoProduct { of, reason });
    }
    (table.product_time)(device, of, size, seconds)
}

fn table<B: Backend>() -> Result<&'static LimitTable<B>, LimitError> {
    registry::table().ok_or(LimitError::NoKernels)
}
