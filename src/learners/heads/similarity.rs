use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;
use serde::{Deserialize, Serialize};

use super::checked::{positive, some_steps};
use super::descent::Descent;
use super::unit_length::{length, unit_length};

/// Share of an embedding's squared length below which its squared distance is rounding.
const ROUNDING: f64 = 1e-6;

/// Similarity of an embedding `x` and the weights `w` of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Similarity {
    /// `x · w`.
    Dot,
    /// `x · w / (|x| |w|)`.
    Cosine,
    /// `-|x - w|^2 / 2`.
    SquaredEuclidean,
    /// `-|x - w|`.
    Euclidean,
}

/// Embeddings that stay, scored by class weights that move.
pub(super) struct Scored<B: Backend> {
    /// `[t, n, d]`
    embeddings: Tensor<B, 3>,
    temperature: f64,
    frame: Frame<B>,
}

/// Values that stay while the weights move.
enum Frame<B: Backend> {
    Dot,
    Cosine,
    Distance { start: Tensor<B, 3>, squares: Tensor<B, 3>, rooted: bool },
}

impl<B: Backend> Scored<B> {
    /// Scores of `embeddings` `[t, n, d]`, by weights `[t, ways, d]` that begin at `start`.
    ///
    /// # Panics
    /// If the temperature is not positive.
    pub(super) fn new(
        similarity: Similarity,
        temperature: f64,
        embeddings: Tensor<B, 3>,
        start: &Tensor<B, 3>,
    ) -> Self {
        positive("the temperature", temperature);
        let (embeddings, frame) = match similarity {
            Similarity::Dot => (embeddings, Frame::Dot),
            Similarity::Cosine => (unit_length(embeddings, 2), Frame::Cosine),
            Similarity::SquaredEuclidean | Similarity::Euclidean => {
                let rooted = similarity == Similarity::Euclidean;
                let frame = Frame::distance(&embeddings, start, rooted);
                (embeddings, frame)
            }
        };
        Self { embeddings, temperature, frame }
    }

    /// `temperature` times the similarity, `[t, n, ways]`.
    pub(super) fn logits(&self, weights: Tensor<B, 3>) -> Tensor<B, 3> {
        match &self.frame {
            Frame::Dot => self.products(weights * self.temperature),
            Frame::Cosine => self.products(unit_length(weights, 2) * self.temperature),
            Frame::Distance { start, squares, rooted } => {
                // |x - w|^2 = |x - s|^2 - 2 x·m + m·(w + s) for weights that moved by m from s: the
                // short way of an embedding that is its class's prototype would drown in |x|^2.
                let moved = weights.clone() - start.clone();
                let of_weights = (moved.clone() * (weights + start.clone())).sum_dim(2);
                let squares =
                    self.products(moved * -2.0) + squares.clone() + of_weights.swap_dims(1, 2);
                match rooted {
                    true => squares.clamp_min(0.0).sqrt() * -self.temperature,
                    false => squares * (-0.5 * self.temperature),
                }
            }
        }
    }

    /// Derivative by the `weights`, `[t, ways, d]`, of a loss with the derivative `slopes` by its
    /// logits.
    // With T the temperature, g the slopes, and sums over all embeddings:
    // logits T x·w          dw = T Σ g x
    // logits T x̂·ŵ          dw = T/|w| (p - ŵ (ŵ·p)) with p = Σ g x̂
    // logits -T |x - w|²/2  dw = T Σ g (x - w)
    // logits -T |x - w|     dw = T Σ g (x - w)/|x - w|, and, as in PyTorch, 0 where x = w
    pub(super) fn gradient(
        &self,
        weights: &Tensor<B, 3>,
        slopes: impl FnOnce(Tensor<B, 3>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        let logits = self.logits(weights.clone());
        let slopes = slopes(logits.clone()) * self.temperature;
        match &self.frame {
            Frame::Dot => self.pull(slopes),
            Frame::Cosine => {
                let length = length(weights.clone(), 2);
                let unit = weights.clone() / length.clone();
                let pull = self.pull(slopes);
                let along = (pull.clone() * unit.clone()).sum_dim(2);
                (pull - unit * along) / length
            }
            Frame::Distance { rooted, .. } => {
                let slopes = match rooted {
                    true => {
                        let distances = logits / -self.temperature;
                        let nowhere = distances.clone().equal_elem(0.0);
                        (slopes / distances).mask_fill(nowhere, 0.0)
                    }
                    false => slopes,
                };
                let shares = slopes.clone().sum_dim(1).swap_dims(1, 2);
                self.pull(slopes) - weights.clone() * shares
            }
        }
    }

    /// Weights after so many steps of Adam, at least one, down the loss with these slopes.
    pub(super) fn descended(
        &self,
        mut weights: Tensor<B, 3>,
        (steps, rate): (usize, f64),
        slopes: impl Fn(Tensor<B, 3>) -> Tensor<B, 3>,
    ) -> Tensor<B, 3> {
        some_steps(steps);
        let mut adam = Descent::adam(rate);
        for _ in 0..steps {
            let gradient = self.gradient(&weights, &slopes);
            weights = adam.step(weights, gradient);
        }
        weights
    }

    /// Sum of all embeddings with the weights `shares` `[t, n, ways]`, `[t, ways, d]`.
    pub(super) fn pull(&self, shares: Tensor<B, 3>) -> Tensor<B, 3> {
        product(shares.swap_dims(1, 2), self.embeddings.clone())
    }

    fn products(&self, weights: Tensor<B, 3>) -> Tensor<B, 3> {
        product(self.embeddings.clone(), weights.swap_dims(1, 2))
    }
}

impl<B: Backend> Frame<B> {
    fn distance(embeddings: &Tensor<B, 3>, start: &Tensor<B, 3>, rooted: bool) -> Self {
        let of_embeddings = embeddings.clone().square().sum_dim(2);
        let of_start = start.clone().square().sum_dim(2).swap_dims(1, 2);
        let products = product(embeddings.clone(), start.clone().swap_dims(1, 2));
        let squares = products * -2.0 + of_embeddings.clone() + of_start;
        let rounding = of_embeddings * ROUNDING;
        let same = squares.clone().lower_equal(rounding.expand(squares.dims()));
        Self::Distance { start: start.clone(), squares: squares.mask_fill(same, 0.0), rooted }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests;
