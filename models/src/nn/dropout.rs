use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor};

/// Sets each value to zero with a probability of `rate`, and divides the others by `1 - rate`.
///
/// # Source
/// Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR 2014.
pub fn dropout<B: Backend, const D: usize>(x: Tensor<B, D>, rate: f64) -> Tensor<B, D> {
    let shape = x.dims();
    scaled_by_mask(x, rate, shape)
}

/// Drops the whole residual branch of an image with a probability of `rate`, and divides that of the others by `1 - rate`:
/// stochastic depth.
///
/// # Shapes
/// - `branch`: `[n, ..]`, returned in the same shape
///
/// # Source
/// Huang et al., "Deep Networks with Stochastic Depth", ECCV 2016.
pub fn drop_path<B: Backend, const D: usize>(branch: Tensor<B, D>, rate: f64) -> Tensor<B, D> {
    let mut shape = [1; D];
    shape[0] = branch.dims()[0];
    scaled_by_mask(branch, rate, shape)
}

/// True of a share of values that training may drop: from 0 to below 1.
pub(crate) fn is_drop_rate(rate: f64) -> bool {
    (0.0..1.0).contains(&rate)
}

/// The share, checked.
///
/// # Panics
/// If it is none.
pub(crate) fn checked_drop_rate(rate: f64) -> f64 {
    assert!(is_drop_rate(rate), "training drops a share from 0 to below 1, not {rate}");
    rate
}

/// `x` times a mask of this shape, whose values are 0 or `1 / (1 - rate)`.
fn scaled_by_mask<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    rate: f64,
    shape: [usize; D],
) -> Tensor<B, D> {
    match rate {
        _ if rate <= 0.0 => x,
        _ if rate >= 1.0 => x.zeros_like(),
        _ => {
            let bernoulli = Distribution::Bernoulli(1.0 - rate);
            let mask = Tensor::<B, D>::random(shape, bernoulli, &x.device()).cast(x.dtype());
            x * (mask / (1.0 - rate))
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::backend::Flex;

    use super::*;

    fn ones() -> Tensor<Flex, 3> {
        Flex::seed(&Default::default(), 1);
        Tensor::ones([400, 5, 4], &Default::default())
    }

    fn values(x: Tensor<Flex, 3>) -> Vec<f32> {
        x.into_data().into_vec().unwrap()
    }

    /// Values are 0 or 1 / (1 - rate), and so many of them are 0.
    fn assert_share_dropped(values: &[f32], rate: f32) {
        let zeros = values.iter().filter(|x| **x == 0.0).count();
        let scaled = values.iter().filter(|x| (**x * (1.0 - rate) - 1.0).abs() < 1e-6).count();
        assert_eq!(zeros + scaled, values.len());
        let share = zeros as f32 / values.len() as f32;
        assert!((share - rate).abs() < 0.05, "{share} in place of {rate}");
    }

    #[test]
    fn dropout_drops_values_of_the_rate_one_by_one() {
        let dropped = values(dropout(ones(), 0.3));
        assert_share_dropped(&dropped, 0.3);
        assert!(dropped.chunks(20).any(|image| image.iter().any(|x| *x != image[0])));
        assert_eq!(values(dropout(ones(), 0.0)), values(ones()));
        assert!(values(dropout(ones(), 1.0)).iter().all(|x| *x == 0.0));
    }

    #[test]
    fn drop_path_drops_whole_images_of_the_rate() {
        let dropped = values(drop_path(ones(), 0.3));
        assert_share_dropped(&dropped, 0.3);
        assert!(dropped.chunks(20).all(|image| image.iter().all(|x| *x == image[0])));
    }
}
