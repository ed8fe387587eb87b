use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::implicit::{dot, scaled_by_task};

/// Scales the gradients of each task so that their joint norm is at most `limit`, differentiably.
///
/// Each gradient holds those of `lanes` tasks one after the other.
pub(super) fn clip_norm<B: Backend>(
    gradients: Vec<Option<Tensor<B, 1>>>,
    lanes: usize,
    limit: f64,
) -> Vec<Option<Tensor<B, 1>>> {
    let there: Vec<_> = gradients.iter().flatten().cloned().collect();
    if there.is_empty() {
        return gradients;
    }
    let square = dot(&there, &there, lanes);
    // The root's derivative is infinite at zero, where nothing is cut anyway.
    let norm = square.clamp_min(limit * limit).sqrt();
    let factor = norm.recip() * limit;
    scaled_by_task(gradients, &factor)
}
