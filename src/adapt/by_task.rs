//! Operations on each task by itself, where tensors hold `lanes` tasks one after the other.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::lists::Gradients;

/// The values of each task, `[lanes, n]`.
pub(super) fn by_task<B: Backend>(values: Tensor<B, 1>, lanes: usize) -> Tensor<B, 2> {
    values.reshape([lanes as i32, -1])
}

/// Gradients, each times the factor of its task, `[lanes, 1]`.
pub(super) fn scaled_by_task<B: Backend>(
    gradients: Gradients<B>,
    factor: &Tensor<B, 2>,
) -> Gradients<B> {
    let [lanes, _] = factor.dims();
    let scale = |gradient: Tensor<B, 1>| {
        let length = gradient.dims();
        (by_task(gradient, lanes) * factor.clone()).reshape(length)
    };
    gradients.into_iter().map(|gradient| gradient.map(scale)).collect()
}

/// The scalar product of each task, `[lanes, 1]`.
pub(super) fn dot<B: Backend>(
    one: &[Tensor<B, 1>],
    other: &[Tensor<B, 1>],
    lanes: usize,
) -> Tensor<B, 2> {
    let pairs = one.iter().zip(other);
    let products = pairs.map(|(one, other)| by_task(one.clone() * other.clone(), lanes).sum_dim(1));
    products.reduce(|sum, product| sum + product).expect("at least one tensor")
}

/// Scales the gradients of each task so that their joint norm is at most `limit`, differentiably.
pub(super) fn clip_norm<B: Backend>(
    gradients: Gradients<B>,
    lanes: usize,
    limit: f64,
) -> Gradients<B> {
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

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;

    use super::*;

    #[test]
    fn nothing_is_cut_where_there_is_no_gradient() {
        let clipped: Gradients<Flex> = clip_norm(vec![None, None], 2, 0.5);
        assert!(clipped.len() == 2 && clipped.iter().all(Option::is_none));
    }
}
