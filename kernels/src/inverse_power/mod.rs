//! The power of inputs, by which a learning rate is divided so that it suits inputs of any size.
//!
//! In plain operations these are a dozen on single numbers, at every tick of a plastic layer.

mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};

use crate::host::{HostBackend, elements, unwrap, wrap, write_like};
use crate::registry::{self, Operation, Runs};

/// Sums side by side, which compilers turn into vectors.
const LANES: usize = 32;

/// One over the power of `x`, and the running mean of that power.
///
/// Power is the mean over `b` of the squared length. The running mean follows it within about `tau`
/// calls, `mean + (power - mean) / tau`, and is the power itself where there was none. The larger
/// of the two is what one is divided by; of zeros, and of what is as good as zero in f32, the result
/// is 0.
///
/// # Shapes
/// - `x`: `[b, d]`, with `b > 0`
/// - `mean`: `[1]`
/// - returns the inverse `[1]` and the new mean `[1]`
///
/// # Panics
/// When `x` is of no example, `mean` is not one number, or `tau` is no number from one on.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use fewshot_kernels::inverse_power;
///
/// let x = Tensor::<Flex, 2>::from_data([[3.0, 4.0]], &Default::default());
/// let (inverse, mean) = inverse_power(x, None, 100.0);
/// assert_eq!((inverse.into_scalar(), mean.into_scalar()), (0.04, 25.0));
/// ```
pub fn inverse_power<B: Backend>(
    x: Tensor<B, 2>,
    mean: Option<Tensor<B, 1>>,
    tau: f64,
) -> (Tensor<B, 1>, Tensor<B, 1>) {
    assert!(x.dims()[0] > 0, "inputs have a power, 0 examples do not");
    let numbers = mean.as_ref().map_or(1, |mean| mean.dims()[0]);
    assert!(numbers == 1, "a running mean is one number, found {numbers}");
    let follows = tau >= 1.0 && tau.is_finite();
    assert!(follows, "a running mean follows within a number of calls from 1 on, found {tau}");
    let (x, mean) = (unwrap(x), mean.map(unwrap));
    let types = [&x].into_iter().chain(&mean).map(TensorMetadata::dtype);
    let [inverse, mean] = match registry::f32_body::<B, InversePower>("inverse_power", types) {
        Some(body) => body((x, mean), &InversePower { tau }),
        None => reference::inverse_power::<B>(x, mean, tau),
    };
    (wrap(inverse), wrap(mean))
}

/// The inverse of the power and its new mean.
pub(crate) struct InversePower {
    tau: f64,
}

impl Operation for InversePower {
    type Operands<B: Backend> = (FloatTensor<B>, Option<FloatTensor<B>>);
    type Results<B: Backend> = [FloatTensor<B>; 2];
}

impl<H: HostBackend> Runs<InversePower> for H {
    fn run(
        (x, mean): (FloatTensor<H>, Option<FloatTensor<H>>),
        &InversePower { tau }: &InversePower,
    ) -> [FloatTensor<H>; 2] {
        let now = squares(&elements::<H>(&x)) / x.shape()[0] as f32;
        let mean = match mean {
            Some(mean) => {
                let mean = elements::<H>(&mean)[0];
                mean + (now - mean) / tau as f32
            }
            None => now,
        };
        // A mean that is NaN stays.
        let power = if mean < now { now } else { mean };
        let inverse = if power <= f32::MIN_POSITIVE { 0.0 } else { power.recip() };
        [inverse, mean].map(|number| write_like::<H, 1>(&x, vec![number], [1]))
    }
}

fn squares(x: &[f32]) -> f32 {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += x * x);
    }
    sums.iter().sum::<f32>() + rest.iter().map(|x| x * x).sum::<f32>()
}
