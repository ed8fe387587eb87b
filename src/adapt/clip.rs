use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// Scales the gradients of each task so that their joint norm is at most `limit`, differentiably.
///
/// Each gradient holds those of `lanes` tasks one after the other.
pub(super) fn clip_norm<B: Backend>(
    gradients: Vec<Option<Tensor<B, 1>>>,
    lanes: usize,
    limit: f64,
) -> Vec<Option<Tensor<B, 1>>> {
    let by_task = |gradient: Tensor<B, 1>| gradient.reshape([lanes as i32, -1]);
    let squares = gradients.iter().flatten().map(|gradient| {
        let gradient: Tensor<B, 2> = by_task(gradient.clone());
        (gradient.clone() * gradient).sum_dim(1)
    });
    let Some(square) = squares.reduce(|sum, square| sum + square) else {
        return gradients;
    };
    // The root's derivative is infinite at zero, where nothing is cut anyway.
    let norm = square.clamp_min(limit * limit).sqrt();
    let factor = norm.recip() * limit;
    let scale = |gradient: Tensor<B, 1>| {
        let length = gradient.dims();
        (by_task(gradient) * factor.clone()).reshape(length)
    };
    gradients.into_iter().map(|gradient| gradient.map(&scale)).collect()
}
