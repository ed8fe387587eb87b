use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;
use serde_json::{Value, json};

use super::checked::positive;
use super::sgd::Sgd;
use super::slopes::cross_entropy_slopes;
use super::unit_length::{LEAST_SQUARE, unit_length};
use super::{EmbeddedSupport, FittedHead, Head, LengthNormalisation, LogitFormula, NoFormula};

/// Baseline++: a layer of cosines, trained on the support with cross-entropy.
///
/// `p(y = k | x) = softmax_k(scale * g_k * cos(x, v_k))`, with the directions `v_k` and the gains
/// `g_k` of the classes to train: weight normalisation.
///
/// # Conventions
/// - The scale is 2, as in the authors' code, which has 4 for one of its experiments (CUB with
///   ResNet-10) and 10 above 200 classes.
/// - Every one of 100 steps sees the whole support. The authors' code takes `100 ceil(n / 4)` steps of
///   mini-batches of 4.
/// - Directions start as the class means of the normalised embeddings, at length 1, and gains at 1:
///   they cannot start at zero as in [`Baseline`](super::Baseline), since a vector of length 0 has
///   no direction, and the class means are the best directions known before training. The authors'
///   directions are drawn, and their lengths, about 0.58, are the first gains.
/// - Weight decay pulls on directions and gains, as in the authors' code.
/// - The fit sends no gradient back to the embeddings of the support.
///
/// # Source
/// Chen, Liu, Kira, Wang and Huang, "A Closer Look at Few-shot Classification", ICLR 2019.
#[derive(Module, Clone, Debug)]
pub struct BaselinePlusPlus {
    /// Training of directions and gains.
    pub sgd: Sgd,
    /// Factor of the cosines, above 0.
    pub scale: f64,
}

impl Default for BaselinePlusPlus {
    fn default() -> Self {
        Self { sgd: Sgd::default(), scale: 2.0 }
    }
}

impl BaselinePlusPlus {
    /// The paper's, with the settings of its code.
    pub fn new() -> Self {
        Self::default()
    }

    /// `scale * g_k * v_k / |v_k|` after the training, `[t, ways, d]`: the logits are its products
    /// with normalised embeddings.
    pub fn class_weights<B: Backend>(&self, support: EmbeddedSupport<B>) -> Tensor<B, 3> {
        positive("the scale", self.scale);
        let x = unit_length(support.embeddings.clone().detach(), 2);
        let one_hot = support.one_hot();
        let products = product(x.clone(), x.clone().swap_dims(1, 2));
        let mut shares = first_shares(&products, &one_hot);
        let mut gains = one_hot.clone().sum_dim(1).ones_like();
        let [mut of_shares, mut of_gains] = [self.sgd.descent(), self.sgd.descent()];
        for _ in 0..self.sgd.steps {
            let (cosines, lengths) = cosines(&products, &shares);
            let logits = cosines.clone() * (gains.clone() * self.scale);
            let slopes = cross_entropy_slopes(logits, one_hot.clone());
            let by_gain = (slopes.clone() * cosines).sum_dim(1);
            let direction = shares.clone() / lengths.clone();
            let by_share = (slopes - direction * by_gain.clone()) * (gains.clone() / lengths);
            shares = of_shares.step(shares, by_share * self.scale);
            gains = of_gains.step(gains, by_gain * self.scale);
        }
        let (_, lengths) = cosines(&products, &shares);
        let shares = shares * (gains / lengths * self.scale);
        product(shares.swap_dims(1, 2), x)
    }
}

// The gradients, with the normalised embeddings x_i, c_ik = x_i·v_k/|v_k|, the scale s and the slopes
// g of the loss by the logits s gain c:
//   by gain_k   s Σ_i g_ik c_ik
//   by v_k      s gain_k / |v_k| Σ_i g_ik (x_i - v_k/|v_k| c_ik)
// From a class mean, v stays a sum of embeddings, v_k = Σ_i a_ik x_i, and steps of a by the factors of
// x_i are exactly the steps of v. They need no more than the products of the support with itself.

/// Cosines `[t, n, ways]` and lengths `[t, 1, ways]` of directions that are sums of embeddings.
fn cosines<B: Backend>(
    products: &Tensor<B, 3>,
    shares: &Tensor<B, 3>,
) -> (Tensor<B, 3>, Tensor<B, 3>) {
    let along = product(products.clone(), shares.clone());
    let squares = (shares.clone() * along.clone()).sum_dim(1);
    let lengths = squares.clamp_min(LEAST_SQUARE).sqrt();
    (along / lengths.clone(), lengths)
}

/// Weights that are class means of length 1.
fn first_shares<B: Backend>(products: &Tensor<B, 3>, one_hot: &Tensor<B, 3>) -> Tensor<B, 3> {
    let (_, lengths) = cosines(products, one_hot);
    // A mean of nothing but zeros keeps the shares of a mean.
    let counts = one_hot.clone().sum_dim(1).clamp_min(1.0);
    let nowhere = lengths.clone().lower_elem(2.0 * LEAST_SQUARE.sqrt());
    one_hot.clone() / lengths.mask_where(nowhere, counts)
}

impl<B: Backend> Head<B> for BaselinePlusPlus {
    const NAME: &'static str = "baseline++";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let ways = support.ways;
        let weights = self.class_weights(support).swap_dims(1, 2);
        FittedHead::new(ways, move |queries| product(unit_length(queries, 2), weights.clone()))
    }

    fn formula(&self, support: EmbeddedSupport<B>) -> Result<LogitFormula<B>, NoFormula> {
        let weights = self.class_weights(support).swap_dims(1, 2);
        Ok(LogitFormula::products(LengthNormalisation::Unit, weights))
    }

    fn settings(&self) -> Value {
        json!({ "sgd": self.sgd, "scale": self.scale })
    }
}
