use burn::tensor::backend::Backend;
use burn::tensor::{BasicOps, Element, Tensor, TensorCreationOptions, TensorData};

/// A tensor of these values, on a device.
///
/// They are uploaded as a vector. CUDA would pad each row of a matrix, and before every kernel that reads rows without
/// gaps, a launch would copy them.
pub(crate) fn uploaded<B: Backend, const D: usize, K: BasicOps<B>>(
    values: Vec<impl Element>,
    shape: [usize; D],
    options: impl Into<TensorCreationOptions<B>>,
) -> Tensor<B, D, K> {
    if values.is_empty() {
        return Tensor::empty(shape, options);
    }
    let length = [values.len()];
    Tensor::<B, 1, K>::from_data(TensorData::new(values, length), options).reshape(shape)
}
