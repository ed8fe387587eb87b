//! Slices of a tensor that the host chooses.

use burn::tensor::backend::Backend;
use burn::tensor::{BasicOps, Int, Tensor, TensorData};

use crate::registry::on_host;

/// Elements of a multiple of which a view may end within memory on every accelerator.
const ALIGNED: usize = 128;

/// The slices of `x` along `dim` in these places, in their order.
///
/// # Conventions
/// Burn's `select`, whose kernel on an accelerator reads as many places as the longest axis of the result has,
/// and leaves the memory that has them. Here more places than are chosen lie there.
///
/// # Panics
/// Where `x` has no such dimension.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use fewshot_kernels::select;
///
/// let x = Tensor::<Flex, 2>::from_data([[1.0, 2.0], [3.0, 4.0]], &Default::default());
/// let rows = select(x, 0, vec![1, 1, 0]);
/// let expected = Tensor::<Flex, 2>::from_data([[3.0, 4.0], [3.0, 4.0], [1.0, 2.0]], &Default::default());
/// assert_eq!(rows.into_data(), expected.into_data());
/// ```
pub fn select<B: Backend, const D: usize, K: BasicOps<B>>(
    x: Tensor<B, D, K>,
    dim: usize,
    mut places: Vec<i32>,
) -> Tensor<B, D, K> {
    let count = places.len();
    if count == 0 {
        let mut shape = x.dims();
        shape[dim] = 0;
        return Tensor::empty(shape, (&x.device(), x.dtype()));
    }
    let longest = x.dims().into_iter().max().unwrap_or(0);
    if !on_host::<B>() {
        places.resize(count + longest.saturating_sub(count).next_multiple_of(ALIGNED), 0);
    }
    let length = [places.len()];
    let stored = Tensor::<B, 1, Int>::from_data(TensorData::new(places, length), &x.device());
    let chosen = if length == [count] { stored } else { stored.narrow(0, 0, count) };
    x.select(dim, chosen)
}
