use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{Metric, product, scores};
use serde_json::{Value, json};

use super::checked::positive;
use super::formula::single_task;
use super::linear_solve::inverses;
use super::{EmbeddedSupport, FittedHead, Head, LogitFormula, NoFormula};

/// The nearest class mean, by a Mahalanobis distance with a covariance of each class's own.
///
/// `logit_k(q) = -1/2 (q - c_k)^T Q_k^-1 (q - c_k)` with `Q_k = l_k S_k + (1 - l_k) S + r I` and
/// `l_k = n_k / (n_k + 1)`; here `c_k` is the mean and `S_k` the covariance of the `n_k` embeddings
/// of class `k`, `S` the covariance of all embeddings, and `r = 1`.
///
/// No matrix over features is made: memory grows with the square of the number of support images,
/// so many features are as good as few.
///
/// # Conventions
/// Covariances divide by one less than the number of embeddings. That of a single embedding is
/// zero, as in the paper; the authors' code takes the variance over its features for all entries.
/// The authors' code has no factor of 1/2 before distances. The paper's encoder adapts to the task besides;
/// this is its classifier.
///
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::Tensor};
/// # use fewshot::learners::heads::{EmbeddedSupport, Head, SimpleCnaps};
/// # let device = Default::default();
/// // Of one shot at 0 and one at 2, the covariance is 2 over all and 0 in a class: Q = 2 / 2 + 1.
/// let embeddings = Tensor::<Flex, 3>::from_data([[[0.0], [2.0]]], &device);
/// let support = EmbeddedSupport::new(embeddings, Tensor::from_data([[0, 1]], &device), 2);
/// let logits = SimpleCnaps::new().fit(support).logits(Tensor::from_data([[[-2.0]]], &device));
/// logits.into_data().assert_approx_eq::<f32>(&[[[-1.0, -4.0]]].into(), Default::default());
/// ```
///
/// # Source
/// Bateni, Goyal, Masrani, Wood and Sigal, "Improved Few-Shot Visual Classification", CVPR 2020.
#[derive(Module, Clone, Debug)]
pub struct SimpleCnaps {
    /// `r`, the multiple of the identity in each covariance, above 0.
    pub regulariser: f64,
}

impl SimpleCnaps {
    /// The paper's classifier.
    pub fn new() -> Self {
        Self { regulariser: 1.0 }
    }
}

impl Default for SimpleCnaps {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Backend> Head<B> for SimpleCnaps {
    const NAME: &'static str = "simple-cnaps";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        positive("the regulariser of covariances", self.regulariser);
        let ways = support.ways;
        let spread = Spread::new(support, self.regulariser);
        FittedHead::new(ways, move |queries| spread.distances(queries) * -0.5)
    }

    fn formula(&self, support: EmbeddedSupport<B>) -> Result<LogitFormula<B>, NoFormula> {
        positive("the regulariser of covariances", self.regulariser);
        let Spread { mean, centred, prototypes, inner, regulariser } =
            Spread::new(support, self.regulariser);
        Ok(LogitFormula::Mahalanobis {
            mean: single_task(mean).squeeze_dim(0),
            centred: single_task(centred),
            prototypes: single_task(prototypes),
            inner: inner.squeeze_dim(0),
            regulariser,
        })
    }

    fn settings(&self) -> Value {
        json!({ "regulariser": self.regulariser })
    }
}

/// The covariances of all classes, by the support.
///
/// Let `X` `[n, d]` be the support less its mean, `y` mark the `m` examples of a class, and
/// `P = diag(y) - y y^T / m`, which is a projection. Then `Q = X^T M X + r I` with `M = a P + b I`,
/// `a = l / (m - 1)` and `b = (1 - l) / (n - 1)`. The root of `M` is
/// `R = (sqrt(a + b) - sqrt(b)) P + sqrt(b) I`, and with `G = X X^T` Woodbury's identity says
/// `r Q^-1 = I - X^T R (r I + R G R)^-1 R X`.
struct Spread<B: Backend> {
    /// Mean of the support, `[t, 1, d]`.
    mean: Tensor<B, 3>,
    /// `X`, `[t, n, d]`.
    centred: Tensor<B, 3>,
    /// Class means less the mean, `[t, ways, d]`.
    prototypes: Tensor<B, 3>,
    /// `R (r I + R G R)^-1 R` of each class, `[t, ways, n, n]`.
    inner: Tensor<B, 4>,
    regulariser: f64,
}

impl<B: Backend> Spread<B> {
    fn new(support: EmbeddedSupport<B>, regulariser: f64) -> Self {
        let mean = support.embeddings.clone().mean_dim(1);
        let support = support.with_embeddings(support.embeddings.clone() - mean.clone());
        let centred = support.embeddings.clone();
        let [tasks, examples, _] = centred.dims();
        let ways = support.ways;
        let root = root(&support);
        let gram = product(centred.clone(), centred.clone().swap_dims(1, 2));
        let gram = gram.unsqueeze_dim::<4>(1).expand([tasks, ways, examples, examples]);
        let identity = identity::<B>(examples, &centred.device());
        let within = product(product(root.clone(), gram), root.clone());
        let within = within + identity * regulariser;
        let inverse = inverses(within.reshape([tasks * ways, examples, examples]));
        let inverse = inverse.reshape([tasks, ways, examples, examples]);
        let inner = product(product(root.clone(), inverse), root);
        Self { mean, centred, prototypes: support.prototypes(), inner, regulariser }
    }

    /// Squared Mahalanobis distances of queries `[t, q, d]` to all class means, `[t, q, ways]`.
    fn distances(&self, queries: Tensor<B, 3>) -> Tensor<B, 3> {
        let ([tasks, asked, _], ways) = (queries.dims(), self.prototypes.dims()[1]);
        let queries = queries - self.mean.clone();
        let across = self.centred.clone().swap_dims(1, 2);
        let along = |x: Tensor<B, 3>| product(x, across.clone());
        let [of_queries, of_means] = [queries.clone(), self.prototypes.clone()].map(along);
        let difference = of_queries.unsqueeze_dim::<4>(1) - of_means.unsqueeze_dim::<4>(2);
        let explained = product(difference.clone(), self.inner.clone()) * difference;
        let explained = explained.sum_dim(3).reshape([tasks, ways, asked]).swap_dims(1, 2);
        let straight = scores(queries, self.prototypes.clone(), Metric::SquaredEuclidean).neg();
        (straight - explained) / self.regulariser
    }
}

/// `R` of each class, `[t, ways, n, n]`.
fn root<B: Backend>(support: &EmbeddedSupport<B>) -> Tensor<B, 4> {
    let [_, examples, _] = support.embeddings.dims();
    // [t, ways, n, 1]
    let member = support.one_hot().swap_dims(1, 2).unsqueeze_dim::<4>(3);
    let count = member.clone().sum_dim(2);
    let share = count.clone() / (count.clone() + 1.0);
    let of_class = share.clone() / (count.clone() - 1.0).clamp_min(1.0);
    let of_task = (share.neg() + 1.0) / (examples.max(2) - 1) as f64;
    let base = of_task.clone().sqrt();
    let stretch = (of_class + of_task).sqrt() - base.clone();
    let identity = identity::<B>(examples, &count.device());
    let means = member.clone() * member.clone().swap_dims(2, 3) / count.clamp_min(1.0);
    (identity.clone() * member - means) * stretch + identity * base
}

/// `[1, 1, n, n]`.
fn identity<B: Backend>(size: usize, device: &B::Device) -> Tensor<B, 4> {
    Tensor::<B, 2>::eye(size, device).unsqueeze()
}
