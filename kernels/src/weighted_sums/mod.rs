//! The sums of neurons: products with a weight whose rows are neurons.
//!
//! Few examples meet a weight that changes at every tick, so that nothing can be prepared once and
//! for all, and a general product spends its time on arranging the larger operand. Here the rows of
//! the weight are read as they lie.

pub(crate) mod cpu;
mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};

use crate::host::{unwrap, wrap};
use crate::registry::{self, Operation};

/// `x weight^T`.
///
/// # Shapes
/// - `x`: `[b, inputs]`
/// - `weight`: `[neurons, inputs]`
/// - returns `[b, neurons]`
///
/// # Conventions
/// PyTorch's `F.linear` without a bias.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use fewshot_kernels::weighted_sums;
///
/// let device = Default::default();
/// let x = Tensor::<Flex, 2>::from_data([[1.0, 2.0]], &device);
/// let weight = Tensor::from_data([[3.0, 4.0], [5.0, 6.0]], &device);
/// let sums = Tensor::<Flex, 2>::from_data([[11.0, 17.0]], &device);
/// assert_eq!(weighted_sums(x, weight).into_data(), sums.into_data());
/// ```
pub fn weighted_sums<B: Backend>(x: Tensor<B, 2>, weight: Tensor<B, 2>) -> Tensor<B, 2> {
    let ([_, inputs], found) = (x.dims(), weight.dims());
    assert!(
        found[1] == inputs,
        "neurons that sum up {inputs} inputs have a weight [neurons, {inputs}], found {found:?}"
    );
    let (x, weight) = (unwrap(x), unwrap(weight));
    let types = [&x, &weight].map(TensorMetadata::dtype);
    wrap(match registry::f32_body::<B, WeightedSums>("weighted_sums", types) {
        Some(body) => body([x, weight], &WeightedSums),
        None => reference::weighted_sums::<B>(x, weight),
    })
}

/// The sums of examples and a weight.
pub(crate) struct WeightedSums;

impl Operation for WeightedSums {
    type Operands<B: Backend> = [FloatTensor<B>; 2];
    type Results<B: Backend> = FloatTensor<B>;
}
