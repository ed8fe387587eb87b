use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

/// Allocates, computes and reads back: squares whose values are known. A single kernel, for a
/// software renderer takes seconds to compile those of a matrix product.
pub(super) fn compute<B: Backend>(device: &B::Device) -> Result<(), String> {
    let numbers = (1..=64).map(|number| number as f32).collect::<Vec<_>>();
    let wanted = numbers.iter().map(|number| number * number).collect::<Vec<_>>();
    let tensor = Tensor::<B, 1>::from_data(TensorData::new(numbers, [64]), device);
    let squares = tensor.clone() * tensor;
    B::sync(device).map_err(|error| error.to_string())?;
    let data = squares.try_into_data().map_err(|error| error.to_string())?;
    let found = data.convert::<f32>().to_vec::<f32>().map_err(|error| format!("{error:?}"))?;
    match found == wanted {
        true => Ok(()),
        false => Err(format!("squares came out as {:?} …", &found[..4.min(found.len())])),
    }
}
