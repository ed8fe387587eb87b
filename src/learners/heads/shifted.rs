use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;
use serde::{Deserialize, Serialize};

use super::EmbeddedSupport;
use super::unit_length::{LEAST_SQUARE, unit_length};

/// Whether a head divides embeddings by their lengths before all else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LengthNormalisation {
    /// All embeddings are brought to length 1.
    Unit,
    /// Embeddings stay as they are.
    Given,
}

/// Queries moved so that their mean is that of the support, `x_i = l_i q_i + m`.
///
/// They are never written down: a pass over all queries costs more than everything that is done with
/// the few numbers they are reduced to.
pub(super) struct Shifted<B: Backend> {
    queries: Tensor<B, 3>,
    /// `[t, q, 1]`
    factors: Tensor<B, 3>,
    /// `[t, 1, d]`
    shift: Tensor<B, 3>,
    /// Squared lengths of the queries before the shift, `[t, q, 1]`.
    squares: Tensor<B, 3>,
}

impl<B: Backend> Shifted<B> {
    /// Of `queries` `[t, q, d]` and their support, whose embeddings come back as `lengths` wants them.
    pub fn new(
        support: EmbeddedSupport<B>,
        queries: Tensor<B, 3>,
        lengths: LengthNormalisation,
    ) -> (EmbeddedSupport<B>, Self) {
        let squares = squares(queries.clone());
        let (support, factors, squares) = match lengths {
            LengthNormalisation::Unit => {
                let factors = squares.clone().clamp_min(LEAST_SQUARE).sqrt().recip();
                let embeddings = unit_length(support.embeddings.clone(), 2);
                let of_units = squares * factors.clone().square();
                (support.with_embeddings(embeddings), factors, of_units)
            }
            LengthNormalisation::Given => (support, squares.ones_like(), squares),
        };
        let count = queries.dims()[1] as f64;
        let mean = product(factors.clone().swap_dims(1, 2), queries.clone()) / count;
        let shift = support.embeddings.clone().mean_dim(1) - mean;
        (support, Self { queries, factors, shift, squares })
    }

    /// Without the shift.
    pub fn unshifted(self) -> Self {
        Self { shift: self.shift.zeros_like(), ..self }
    }

    /// Scalar products with `vectors` `[t, m, d]`, `[t, q, m]`.
    pub fn dots(&self, vectors: Tensor<B, 3>) -> Tensor<B, 3> {
        let of_shift = product(self.shift.clone(), vectors.clone().swap_dims(1, 2));
        product(self.queries.clone(), vectors.swap_dims(1, 2)) * self.factors.clone() + of_shift
    }

    /// Sums weighted by `weights` `[t, q, m]`, `[t, m, d]`.
    pub fn sums(&self, weights: Tensor<B, 3>) -> Tensor<B, 3> {
        let totals = weights.clone().sum_dim(1).swap_dims(1, 2);
        let of_queries = (weights * self.factors.clone()).swap_dims(1, 2);
        product(of_queries, self.queries.clone()) + product(totals, self.shift.clone())
    }

    /// Cosines with `vectors` `[t, m, d]`, `[t, q, m]`.
    pub fn cosines(&self, vectors: Tensor<B, 3>) -> Tensor<B, 3> {
        let count = vectors.dims()[1];
        let dots = self.dots(Tensor::cat(vec![unit_length(vectors, 2), self.shift.clone()], 1));
        let squares = self.squares_by(dots.clone().narrow(2, count, 1));
        dots.narrow(2, 0, count) / squares.clamp_min(LEAST_SQUARE).sqrt()
    }

    /// Squared distances to `vectors` `[t, m, d]`, `[t, q, m]`.
    pub fn distances(&self, vectors: Tensor<B, 3>) -> Tensor<B, 3> {
        let count = vectors.dims()[1];
        let dots = self.dots(Tensor::cat(vec![vectors.clone(), self.shift.clone()], 1));
        let squares = self.squares_by(dots.clone().narrow(2, count, 1));
        let of_vectors = vectors.square().sum_dim(2).swap_dims(1, 2);
        dots.narrow(2, 0, count) * -2.0 + squares + of_vectors
    }

    /// Squared distances among the queries, `[t, q, q]`; no shift changes them.
    pub fn among(&self) -> Tensor<B, 3> {
        let across = |left: Tensor<B, 3>, right: Tensor<B, 3>| product(left, right.swap_dims(1, 2));
        let dots = across(self.queries.clone(), self.queries.clone());
        // Sums and products of all pairs by products too: rows and columns broadcast more slowly.
        let factors = across(self.factors.clone() * -2.0, self.factors.clone());
        let ones = self.squares.ones_like();
        let left = Tensor::cat(vec![self.squares.clone(), ones.clone()], 2);
        let right = Tensor::cat(vec![ones, self.squares.clone()], 2);
        dots * factors + across(left, right)
    }

    /// Squared lengths, from the scalar products with the shift.
    fn squares_by(&self, of_shift: Tensor<B, 3>) -> Tensor<B, 3> {
        let shift = self.shift.clone().square().sum_dim(2);
        self.squares.clone() + of_shift * 2.0 - shift
    }
}

/// `[t, n, d]` to `[t, n, 1]`: as products of each row with itself, which write no squares down.
fn squares<B: Backend>(rows: Tensor<B, 3>) -> Tensor<B, 3> {
    let [tasks, examples, features] = rows.dims();
    let each = rows.reshape([tasks * examples, 1, features]);
    product(each.clone(), each.swap_dims(1, 2)).reshape([tasks, examples, 1])
}
