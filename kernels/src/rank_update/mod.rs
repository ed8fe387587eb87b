//! A weight that keeps a share of itself and grows by a few outer products.
//!
//! What a local learning rule does to a layer at every tick: in plain operations a tensor for the
//! products and two more passes, of which nothing is ever computed with again.

mod cpu;
pub(crate) mod host;
pub mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor, TensorMetadata};

use crate::door;
use crate::host::{unwrap, wrap};
use crate::optim_step::StepTable;
use crate::refusal::Refusal;

/// What a weight keeps of itself.
#[derive(Clone, Debug)]
pub enum Kept<T> {
    /// The same share of all elements; 1 keeps all.
    Share(f64),
    /// A share of each row, `[rows, 1]`, or one read from the device, `[1, 1]`.
    Each(T),
}

impl<T> Kept<T> {
    fn map<U>(self, map: impl FnOnce(T) -> U) -> Kept<U> {
        match self {
            Self::Share(share) => Kept::Share(share),
            Self::Each(shares) => Kept::Each(map(shares)),
        }
    }
}

/// Operands that do not fit each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// Factors that do not have a product of the weight's shape.
    #[error(
        "a weight of shape {weight:?} cannot grow by the transpose of {left:?} times {right:?}"
    )]
    Factors {
        /// The weight's shape.
        weight: [usize; 2],
        /// The left factor's.
        left: [usize; 2],
        /// The right factor's.
        right: [usize; 2],
    },
    /// Shares that are neither one for each row nor one for all.
    #[error("a weight of {rows} rows keeps a share [{rows}, 1] or [1, 1], found {found:?}")]
    Kept {
        /// Rows of the weight.
        rows: usize,
        /// Shape of the shares.
        found: [usize; 2],
    },
}

/// `weight[i, j] * kept[i] + sum over k of left[k, i] * right[k, j]`.
///
/// A fused body writes to the memory of the weight where nothing else holds it, so pass on the only
/// copy. It works below autodiff: on a backend that differentiates, plain operations run, and
/// gradients flow to all operands.
///
/// # Shapes
/// - `weight`: `[rows, columns]`
/// - `left`: `[k, rows]`
/// - `right`: `[k, columns]`
///
/// # Conventions
/// With one share for all it is BLAS's `ger` for `k = 1` and `gemm` with a transposed left factor
/// otherwise, `torch.addmm(weight, left.T, right, beta=kept)`.
///
/// # Panics
/// With a [`RankError`], where shapes do not fit.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use fewshot_kernels::{Kept, rank_update};
///
/// let row = |values| Tensor::<Flex, 2>::from_data([values], &Default::default());
/// let weight = Tensor::ones([2, 2], &Default::default());
/// let weight = rank_update(weight, Kept::Share(0.5), row([1.0, 2.0]), row([10.0, 20.0]));
/// assert_eq!(weight.into_data(), Tensor::<Flex, 2>::from_data(
///     [[10.5, 20.5], [20.5, 40.5]], &Default::default(),
/// ).into_data());
/// ```
pub fn rank_update<B: Backend>(
    weight: Tensor<B, 2>,
    kept: Kept<Tensor<B, 2>>,
    left: Tensor<B, 2>,
    right: Tensor<B, 2>,
) -> Tensor<B, 2> {
    if let Err(error) = check(&weight, &kept, &left, &right) {
        panic!("{error}");
    }
    let (weight, factors) = (unwrap(weight), [unwrap(left), unwrap(right)]);
    let kept = kept.map(unwrap);
    wrap(match door::table::<StepTable<B>>() {
        Some(table) if all_f32::<B>(&weight, &kept, &factors) => {
            (table.rank_update)(weight, kept, factors)
        }
        _ => reference::rank_update::<B>(weight, kept, factors),
    })
}

fn check<B: Backend>(
    weight: &Tensor<B, 2>,
    kept: &Kept<Tensor<B, 2>>,
    left: &Tensor<B, 2>,
    right: &Tensor<B, 2>,
) -> Result<(), RankError> {
    let [weight, left, right] = [weight, left, right].map(|tensor| tensor.dims());
    let [rows, columns] = weight;
    if left[1] != rows || right != [left[0], columns] {
        return Err(RankError::Factors { weight, left, right });
    }
    match kept {
        Kept::Each(shares) if ![[rows, 1], [1, 1]].contains(&shares.dims()) => {
            Err(RankError::Kept { rows, found: shares.dims() })
        }
        _ => Ok(()),
    }
}

fn all_f32<B: Backend>(
    weight: &FloatTensor<B>,
    kept: &Kept<FloatTensor<B>>,
    factors: &[FloatTensor<B>; 2],
) -> bool {
    let shares = match kept {
        Kept::Share(_) => None,
        Kept::Each(shares) => Some(shares),
    };
    let tensors = [weight].into_iter().chain(shares).chain(factors);
    let found = tensors.map(TensorMetadata::dtype).find(|&found| found != DType::F32);
    if let Some(found) = found {
        Refusal::ElementType { found }.note("rank_update");
    }
    found.is_none()
}
