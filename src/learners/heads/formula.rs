//! Fitted heads as formulas of a query, for programs that have none of the heads.

use burn::tensor::Tensor;
use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;

use super::rectification::LengthNormalisation;

/// Logits of one task as a formula of a query, up to a number that all classes share and that a softmax takes away.
///
/// `z` is the query as [`LengthNormalisation`] has it.
#[derive(Clone, Debug)]
pub enum LogitFormula<B: Backend> {
    /// `z W + b`.
    Linear {
        /// Length of the query.
        lengths: LengthNormalisation,
        /// `W`, `[d, ways]`.
        weights: Tensor<B, 2>,
        /// `b`, `[ways]`.
        intercepts: Tensor<B, 1>,
    },
    /// `log(softmax(z D) C + 1e-6)`: shares of `m` examples in what a query attends to, added up by class.
    Attention {
        /// Length of the query.
        lengths: LengthNormalisation,
        /// `D`, `[d, m]`.
        directions: Tensor<B, 2>,
        /// `C`, `[m, ways]`: 1 at the class of each example.
        classes: Tensor<B, 2>,
    },
    /// `-|M(z, k)|^2 / 2`, a Mahalanobis distance of each class's own: with `u = z - mean` and `v = (u - p_k) X^T`, the logit is
    /// `(u p_k - |p_k|^2 / 2 + v I_k v^T / 2) / r`.
    Mahalanobis {
        /// Mean of the support, `[d]`.
        mean: Tensor<B, 1>,
        /// `X`, the support less its mean, `[m, d]`.
        centred: Tensor<B, 2>,
        /// `p`, class means less that mean, `[ways, d]`.
        prototypes: Tensor<B, 2>,
        /// `I`, `[ways, m, m]`.
        inner: Tensor<B, 3>,
        /// `r`.
        regulariser: f64,
    },
}

/// The reason why a head is no [`LogitFormula`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoFormula(pub &'static str);

/// Share of each class that the logits of attention begin at.
pub const LEAST_SHARE: f64 = 1e-6;

impl<B: Backend> LogitFormula<B> {
    /// A linear layer on embeddings of this length, with a weight `[1, d, ways]` and intercepts `[1, 1, ways]` or one for all.
    pub(super) fn linear(
        lengths: LengthNormalisation,
        weights: Tensor<B, 3>,
        intercepts: Tensor<B, 3>,
    ) -> Self {
        let [_, _, ways] = weights.dims();
        let intercepts = intercepts.expand([1, 1, ways]).reshape([ways]);
        Self::Linear { lengths, weights: single_task(weights), intercepts }
    }

    /// Products with weights `[1, d, ways]`.
    pub(super) fn products(lengths: LengthNormalisation, weights: Tensor<B, 3>) -> Self {
        let none = Tensor::zeros([1, 1, 1], (&weights.device(), weights.dtype()));
        Self::linear(lengths, weights, none)
    }

    /// `-scale |z - c_k|^2` with prototypes `c` `[1, ways, d]`: of the square of `z` all classes have the same.
    pub(super) fn squared_distances(
        lengths: LengthNormalisation,
        prototypes: Tensor<B, 3>,
        scale: f64,
    ) -> Self {
        // From the middle of the prototypes, whose squares are small: -|z - c|^2 is 2 z·(c - m) + (m - c)·(m + c) and the rest.
        let middle = prototypes.clone().mean_dim(1);
        let differences = prototypes.clone() - middle.clone();
        let squares = (differences.clone() * (prototypes + middle)).sum_dim(2).swap_dims(1, 2);
        Self::linear(lengths, differences.swap_dims(1, 2) * (2.0 * scale), squares * -scale)
    }

    /// Logits `[q, ways]` of queries `[q, d]`.
    pub fn logits(&self, queries: Tensor<B, 2>) -> Tensor<B, 2> {
        match self {
            Self::Linear { lengths, weights, intercepts } => {
                product(lengths.of(queries), weights.clone()) + intercepts.clone().unsqueeze()
            }
            Self::Attention { lengths, directions, classes } => {
                let shares = softmax(product(lengths.of(queries), directions.clone()), 1);
                (product(shares, classes.clone()) + LEAST_SHARE).log()
            }
            Self::Mahalanobis { mean, centred, prototypes, inner, regulariser } => {
                let queries = queries - mean.clone().unsqueeze();
                let across = centred.clone().swap_dims(0, 1);
                let of_queries = product(queries.clone(), across.clone()).unsqueeze_dim::<3>(0);
                let of_means = product(prototypes.clone(), across).unsqueeze_dim::<3>(1);
                let differences = of_queries - of_means;
                let explained =
                    (product(differences.clone(), inner.clone()) * differences).sum_dim(2);
                let squares = prototypes.clone().square().sum_dim(1).swap_dims(0, 1);
                let straight = product(queries, prototypes.clone().swap_dims(0, 1));
                let explained = explained.squeeze_dim::<2>(2).swap_dims(0, 1);
                (straight + (explained - squares) * 0.5) / *regulariser
            }
        }
    }
}

/// The only task's part of a tensor.
///
/// # Panics
/// When there are several tasks.
pub(super) fn single_task<B: Backend>(x: Tensor<B, 3>) -> Tensor<B, 2> {
    let [tasks, rows, columns] = x.dims();
    assert_eq!(tasks, 1, "a formula is of one task");
    x.reshape([rows, columns])
}
