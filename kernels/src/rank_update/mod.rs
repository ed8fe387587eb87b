//! A weight that loses a share of itself and grows by a few outer products, both at a rate.
//!
//! The change that a local learning rule makes to a layer at every tick: in plain operations a tensor for the
//! products and two more passes, of which nothing is ever computed with again.

pub(crate) mod cpu;
mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};

use crate::host::{unwrap, wrap};
use crate::registry::{self, Operation};

/// A factor of an update.
#[derive(Clone, Debug)]
pub enum Coefficient<T> {
    /// A number.
    Number(f64),
    /// One or more that are read from the device.
    Tensor(T),
}

impl<T> Coefficient<T> {
    fn map<U>(self, map: impl FnOnce(T) -> U) -> Coefficient<U> {
        match self {
            Self::Number(number) => Coefficient::Number(number),
            Self::Tensor(tensor) => Coefficient::Tensor(map(tensor)),
        }
    }

    fn tensor(&self) -> Option<&T> {
        match self {
            Self::Number(_) => None,
            Self::Tensor(tensor) => Some(tensor),
        }
    }
}

/// `weight[i, j] * (1 - rate * decay[i]) + rate * sum over k of left[k, i] * right[k, j]`.
///
/// A fused body writes to the memory of the weight where nothing else holds it, so pass on the only
/// copy.
///
/// # Shapes
/// - `weight`: `[rows, columns]`
/// - `left`: `[k, rows]`
/// - `right`: `[k, columns]`
/// - `decay`, the share of the weight that is lost at a rate of 1: a number, where 0 keeps all; or one of
///   each row, `[rows, 1]`, or of all, `[1, 1]`
/// - `rate`: a number, or `[1]`
///
/// # Conventions
/// With one share for all it is BLAS's `ger` for `k = 1` and `gemm` with a transposed left factor
/// otherwise, `torch.addmm(weight, left.T, right, beta=1 - rate * decay, alpha=rate)`.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use fewshot_kernels::{Coefficient, rank_update};
///
/// let row = |values| Tensor::<Flex, 2>::from_data([values], &Default::default());
/// let weight = Tensor::ones([2, 2], &Default::default());
/// let (half, rate) = (Coefficient::Number(0.5), Coefficient::Number(0.5));
/// let weight = rank_update(weight, half, row([1.0, 2.0]), row([10.0, 20.0]), rate);
/// assert_eq!(weight.into_data(), Tensor::<Flex, 2>::from_data(
///     [[5.75, 10.75], [10.75, 20.75]], &Default::default(),
/// ).into_data());
/// ```
pub fn rank_update<B: Backend>(
    weight: Tensor<B, 2>,
    decay: Coefficient<Tensor<B, 2>>,
    left: Tensor<B, 2>,
    right: Tensor<B, 2>,
    rate: Coefficient<Tensor<B, 1>>,
) -> Tensor<B, 2> {
    check(&weight, &decay, &left, &right, &rate);
    if weight.dims().contains(&0) {
        return weight;
    }
    let (weight, factors) = (unwrap(weight), [unwrap(left), unwrap(right)]);
    let (decay, rate) = (decay.map(unwrap), rate.map(unwrap));
    let all = [&weight].into_iter().chain(decay.tensor()).chain(&factors).chain(rate.tensor());
    let types = all.map(TensorMetadata::dtype);
    wrap(match registry::f32_body::<B, WeightUpdate>("rank_update", types) {
        Some(body) => body((weight, decay, factors, rate), &WeightUpdate),
        None => reference::rank_update::<B>(weight, decay, factors, rate),
    })
}

/// The update of a weight with its decay, its two factors and the rate.
pub(crate) struct WeightUpdate;

impl Operation for WeightUpdate {
    type Operands<B: Backend> = (
        FloatTensor<B>,
        Coefficient<FloatTensor<B>>,
        [FloatTensor<B>; 2],
        Coefficient<FloatTensor<B>>,
    );
    type Results<B: Backend> = FloatTensor<B>;
}

fn check<B: Backend>(
    weight: &Tensor<B, 2>,
    decay: &Coefficient<Tensor<B, 2>>,
    left: &Tensor<B, 2>,
    right: &Tensor<B, 2>,
    rate: &Coefficient<Tensor<B, 1>>,
) {
    if let Coefficient::Tensor(rate) = rate {
        let [found] = rate.dims();
        assert!(found == 1, "an update has one rate, found {found}");
    }
    let [weight, left, right] = [weight, left, right].map(|tensor| tensor.dims());
    let [rows, columns] = weight;
    assert!(
        left[1] == rows && right == [left[0], columns],
        "a weight of shape {weight:?} cannot grow by the transpose of {left:?} times {right:?}"
    );
    if let Coefficient::Tensor(shares) = decay {
        let dims = shares.dims();
        let fits = [[rows, 1], [1, 1]].contains(&dims);
        assert!(
            fits,
            "a weight of {rows} rows loses a share [{rows}, 1] or [1, 1], found {dims:?}"
        );
    }
}
