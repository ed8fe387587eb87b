//! Derivatives of losses by logits, `[t, n, ways]`.

use burn::tensor::Tensor;
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::backend::Backend;

/// Least mean probability of a class, whose logarithm must be finite.
const LEAST_SHARE: f64 = 1e-30;

/// Derivative of the mean cross-entropy.
pub(super) fn cross_entropy_slopes<B: Backend>(
    logits: Tensor<B, 3>,
    one_hot: Tensor<B, 3>,
) -> Tensor<B, 3> {
    let examples = logits.dims()[1];
    (softmax(logits, 2) - one_hot) / examples as f64
}

/// Derivative of the mean Shannon entropy `-mean_i Σ_k p_ik ln p_ik`, or of the mean entropy and the marginal's
/// negative entropy: `marginal Σ_k m_k ln m_k - conditional mean_i Σ_k p_ik ln p_ik` with
/// `m = mean_i p_i`.
// By p_ik, but for constants, it is g_ik / n with g = marginal ln m - conditional ln p; the softmax
// turns that into p (g - Σ_k p g) / n, for which constants are nothing.
pub(super) fn entropy_slopes<B: Backend>(
    logits: Tensor<B, 3>,
    marginal: f64,
    conditional: f64,
) -> Tensor<B, 3> {
    let examples = logits.dims()[1];
    if examples == 0 {
        return logits;
    }
    let logs = log_softmax(logits, 2);
    let p = logs.clone().exp();
    let mut g = logs * -conditional;
    if marginal != 0.0 {
        g = g + p.clone().mean_dim(1).clamp_min(LEAST_SHARE).log() * marginal;
    }
    let mean = (p.clone() * g.clone()).sum_dim(2);
    p * (g - mean) / examples as f64
}

#[cfg(all(test, feature = "flex"))]
mod tests;
