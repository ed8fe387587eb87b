//! The linear layer.

use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor};

use crate::layers::{through_f32, types, wide};

/// Operands that do not fit each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinearError {
    /// A weight that does not take the features.
    #[error(
        "a linear layer of {features} features needs a weight [{features}, o], found {found:?}"
    )]
    Weight {
        /// Features of the input.
        features: usize,
        /// Shape of the weight.
        found: [usize; 2],
    },
    /// A bias that does not have one value an output.
    #[error("a linear layer with {wanted} outputs needs as many values of bias, found {found}")]
    Bias {
        /// Outputs.
        wanted: usize,
        /// Length found.
        found: usize,
    },
}

/// `x weight + bias`.
///
/// A matrix product and a sum in plain Burn operations on every backend: a fused body would gain
/// nothing, because the product runs at the machine's limit already (on Flex in the `gemm` crate).
/// Burn's own linear operation cannot be differentiated twice; this can.
///
/// # Shapes
/// - `x`: `[n, i]`
/// - `weight`: `[i, o]`, the transpose of PyTorch's, as in Burn
/// - `bias`: `[o]`
/// - output: `[n, o]`
///
/// # Panics
/// When the shapes do not fit, with the text of a [`LinearError`].
pub fn linear<B: Backend>(
    x: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
) -> Tensor<B, 2> {
    if let Err(error) = check(x.dims(), weight.dims(), bias.as_ref()) {
        panic!("{error}");
    }
    if let Some(low) = through_f32::<B>(x.dtype(), types([&bias]).chain([weight.dtype()])) {
        let [bias] = wide([bias]);
        return linear(x.cast(FloatDType::F32), weight.cast(FloatDType::F32), bias).cast(low);
    }
    with_bias(x.matmul(weight), bias)
}

pub(crate) fn with_bias<B: Backend>(y: Tensor<B, 2>, bias: Option<Tensor<B, 1>>) -> Tensor<B, 2> {
    match bias {
        Some(bias) => y + bias.unsqueeze(),
        None => y,
    }
}

/// Whether the shapes fit.
///
/// # Errors
/// A [`LinearError`] that says what does not.
pub(crate) fn check<B: Backend>(
    [_, features]: [usize; 2],
    found: [usize; 2],
    bias: Option<&Tensor<B, 1>>,
) -> Result<(), LinearError> {
    let [inputs, wanted] = found;
    if inputs != features {
        return Err(LinearError::Weight { features, found });
    }
    match bias.map(|bias| bias.dims()) {
        Some([found]) if found != wanted => Err(LinearError::Bias { wanted, found }),
        _ => Ok(()),
    }
}
