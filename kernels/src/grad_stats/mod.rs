//! The check that all gradients are finite, their joint norm, and their unscaling, in one pass.

mod cpu;
#[cfg(feature = "cube")]
#[allow(clippy::too_many_arguments, clippy::assign_op_pattern)]
mod cube;
#[cfg(feature = "fusion")]
mod fusion;
mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorData, TensorMetadata};

use crate::fallback::all_taken;
use crate::host::wrap;
use crate::lists::{has_elements, in_parts};
use crate::registry::{self, Body, Operation};

/// Statistics of gradients before a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradStats {
    /// Euclidean norm over all elements of all gradients; infinite where an element is, NaN where
    /// one is NaN.
    pub norm: f64,
}

impl GradStats {
    /// True if all elements are finite numbers.
    pub fn is_finite(&self) -> bool {
        self.norm.is_finite()
    }
}

/// Multiplies all gradients, of any shapes, by `factor`, and tells of the result.
///
/// The device is read from once. With a factor of 1 the gradients are only read.
///
/// # Conventions
/// The norm of `torch.nn.utils.clip_grad_norm_`, and the check and the factor of
/// `torch.amp.GradScaler.unscale_`. Squares are summed so that they cannot overflow, and in an order
/// that does not depend on the number of threads.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use fewshot_kernels::grad_stats;
///
/// let gradient = Tensor::<Flex, 1>::from_floats([3e30, 4e30], &Default::default());
/// let (_, stats) = grad_stats::<Flex>(vec![gradient.into_primitive().tensor()], 1e-30);
/// assert!(stats.is_finite() && (stats.norm - 5.0).abs() < 1e-5);
/// ```
pub fn grad_stats<B: Backend>(
    gradients: Vec<FloatTensor<B>>,
    factor: f64,
) -> (Vec<FloatTensor<B>>, GradStats) {
    let mut squares = 0.0;
    let body = body::<B, GradStatsCall>(&gradients);
    let batched = |gradients| {
        let (gradients, sum) = match body {
            Some(body) => body(gradients, &GradStatsCall { factor }),
            None => reference::grad_stats::<B>(gradients, factor),
        };
        squares = sum;
        gradients
    };
    let gradients = in_parts(gradients, has_elements, batched, |nothing| nothing);
    (gradients, GradStats { norm: squares.sqrt() })
}

/// [`GradStats`] that are still on devices: nobody has waited for them.
#[derive(Clone, Debug)]
pub struct DeviceGradStats<B: Backend> {
    parts: Vec<Tensor<B, 1>>,
    squares: fn(&[f32]) -> f64,
}

impl<B: Backend> DeviceGradStats<B> {
    /// The tensors to read, whose elements go to [`read`](Self::read) in this order.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<B, 1>> {
        self.parts.iter().cloned()
    }

    /// The statistics, of the elements of [`tensors`](Self::tensors).
    ///
    /// # Panics
    /// When there are others.
    pub fn read(&self, elements: impl IntoIterator<Item = TensorData>) -> GradStats {
        let mut squares = 0.0;
        let mut read = 0;
        for elements in elements {
            let elements = elements.into_vec::<f32>().expect("statistics are f32");
            squares += elements.chunks_exact(PART).map(self.squares).sum::<f64>();
            read += 1;
        }
        assert_eq!(read, self.parts.len(), "elements of all tensors");
        GradStats { norm: squares.sqrt() }
    }
}

/// The statistics of [`grad_stats`] with a factor of 1, without a read from the device.
pub fn grad_stats_on_device<B: Backend>(gradients: Vec<FloatTensor<B>>) -> DeviceGradStats<B> {
    let body = body::<B, GradPartsCall>(&gradients);
    let filled: Vec<_> = gradients.into_iter().filter(has_elements).collect();
    let (parts, squares) = match body {
        Some(body) if !filled.is_empty() => body(filled, &GradPartsCall),
        _ => reference::grad_parts::<B>(filled),
    };
    DeviceGradStats { parts: parts.into_iter().map(wrap).collect(), squares }
}

/// Vectors of parts, of [`PART`] floats each, and the function that makes the sum of squares of a part.
type GradParts<B> = (Vec<FloatTensor<B>>, fn(&[f32]) -> f64);

/// Floats of a part: the largest magnitude, the sum of squares divided by its square, and a mark of
/// elements that are not finite.
const PART: usize = 3;

/// Every gradient times the factor, untouched if that is one, and the sum of the squares of all elements of the
/// result, with one read-back, below autodiff; there is a gradient, and all have elements. The sum is finite if
/// all elements are, infinite if some are, and NaN if one is NaN.
pub(crate) struct GradStatsCall {
    factor: f64,
}

impl Operation for GradStatsCall {
    type Operands<B: Backend> = Vec<FloatTensor<B>>;
    type Results<B: Backend> = (Vec<FloatTensor<B>>, f64);
}

/// The statistics that stay on the device, below autodiff; there is a gradient, and all have elements.
pub(crate) struct GradPartsCall;

impl Operation for GradPartsCall {
    type Operands<B: Backend> = Vec<FloatTensor<B>>;
    type Results<B: Backend> = GradParts<B>;
}

/// The body of `O`, if it takes all of these.
fn body<B: Backend, O: Operation>(gradients: &[FloatTensor<B>]) -> Option<Body<B, O>> {
    let types = gradients.iter().map(TensorMetadata::dtype);
    registry::body().filter(|_| all_taken("grad_stats", types, registry::taken::<B>()))
}
