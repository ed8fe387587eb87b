use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// Allocates, computes and reads back: a product of two matrices whose result is known.
///
/// # Errors
/// What came out instead.
pub(super) fn compute<B: Backend>(device: &B::Device) -> Result<(), String> {
    const N: usize = 32;
    let rows = Tensor::<B, 1, burn::tensor::Int>::arange(0..N as i64, device).float();
    let left = rows.clone().reshape([N, 1]).repeat_dim(1, N);
    let product = left.matmul(Tensor::ones([N, N], device)).sum();
    B::sync(device).map_err(|error| format!("{error}"))?;
    let wanted = (N * N * (N - 1) * N / 2) as f32;
    let data = product.try_into_data().map_err(|error| format!("{error}"))?;
    let found = data.convert::<f32>().iter::<f32>().next();
    match found {
        Some(found) if found == wanted => Ok(()),
        found => Err(format!("a sum that is {wanted} came out as {found:?}")),
    }
}
