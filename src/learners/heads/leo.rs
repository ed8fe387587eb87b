mod config;
mod draw;
#[cfg(test)]
mod tests;

use burn::module::{Module, Param};
use burn::tensor::activation::{relu, softmax};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor};
use fewshot_kernels::{linear, product};
use serde_json::{Value, json};

pub use config::{LeoCodes, LeoConfig, LeoLoss};
use draw::Draw;

use super::{
    EmbeddedEpisode, EmbeddedSupport, FittedHead, Head, accuracies, cross_entropy, unit_length,
};

/// LEO, latent embedding optimization: a linear classifier whose weights are decoded from a code of
/// few numbers for each class; the codes are what adapts to a task.
///
/// A code is drawn as `z_k ~ N(mu_k, sigma_k²)`, where `[mu_k, ln sigma_k]` is the mean of
/// `g([E x_i, E x_j])` over the examples `i` of class `k` and all examples `j`, with `g` three
/// linear layers and ReLU between them; class weights as `w_k ~ N(mu'_k, sigma'_k²)` with `[mu'_k,
/// ln sigma'_k] = D z_k`. Then `z_k <- z_k - alpha dL/dz_k` five times, with weights decoded after
/// each, and `w_k <- w_k - beta dL/dw_k` five times, with `L` the support's cross-entropy;
/// `logit_k(q) = <w_k, q>`.
///
/// # Conventions
/// The meta-gradient goes through all steps, second derivatives included. Only training draws; a
/// test takes `mu_k` and `mu'_k`. As in the authors' code there are no biases, embeddings have
/// length 1, and, with `s` for what the formulas above call `ln sigma`, a deviation is `exp(s) - 1`
/// for codes and `exp(s) - 1 + sqrt(2 / (ways + d))` for weights, but at least 1e-10. As in the
/// paper, a class has one code; the authors' code draws a code and weights for each of its examples
/// and averages their logits, which divides its [steps](LeoLoss::PerShot), and so those here, by
/// the number of shots.
///
/// [`loss`](Head::loss) has the penalties on parameters, those on the squared weights and on the
/// decoder, and [`train_loss`](Head::train_loss) those on codes too: the mean over their values of
/// the divergence `KL(N(mu, sigma²) || N(0, 1))`, in closed form where the authors' code takes a draw's
/// log-densities, and the mean squared difference between codes before the steps and, as constants,
/// after them.
///
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::{Distribution, Tensor}};
/// # use fewshot::learners::heads::{EmbeddedSupport, Head, LeoConfig};
/// # let device = Default::default();
/// let embeddings = Tensor::<Flex, 3>::random([1, 2, 8], Distribution::Default, &device);
/// let support = EmbeddedSupport::new(embeddings.clone(), Tensor::from_data([[0, 1]], &device), 2);
/// let logits = LeoConfig::new(8).init(&device).fit(support).logits(embeddings);
/// assert_eq!(logits.dims(), [1, 2, 2]);
/// ```
///
/// # Source
/// Rusu, Rao, Sygnowski, Vinyals, Pascanu, Osindero and Hadsell, "Meta-Learning with Latent
/// Embedding Optimization", ICLR 2019.
#[derive(Module, Debug)]
pub struct Leo<B: Backend> {
    /// `E`, `[d, l]`, applied as `x E`, as are the other weights.
    pub encoder: Param<Tensor<B, 2>>,
    /// The three layers of `g`, `[2l, 2l]` each.
    pub relations: Vec<Param<Tensor<B, 2>>>,
    /// `D`, `[l, 2d]`.
    pub decoder: Param<Tensor<B, 2>>,
    /// `alpha`, `[l]`.
    pub rates: Param<Tensor<B, 1>>,
    /// `beta`, `[d]`.
    pub fine_tuning_rates: Param<Tensor<B, 1>>,
    #[module(skip)]
    config: LeoConfig,
}

impl<B: Backend> Leo<B> {
    /// Weights `[t, ways, d]` of all classes after all steps.
    ///
    /// # Panics
    /// When the head was made for another number of features.
    pub fn adapted(&self, support: EmbeddedSupport<B>) -> Tensor<B, 3> {
        self.adapted_drawn(support).weights
    }

    fn adapted_drawn(&self, support: EmbeddedSupport<B>) -> AdaptedCodes<B> {
        let drawn = self.config.codes == LeoCodes::Drawn;
        self.adapted_by(support, |mean| {
            let normal = Distribution::Normal(0.0, 1.0);
            (drawn && B::ad_enabled(&mean.device())).then(|| mean.random_like(normal))
        })
    }

    /// The same with noise, if any, of the shape of the means that it gets.
    fn adapted_by(
        &self,
        support: EmbeddedSupport<B>,
        noise: impl Fn(&Tensor<B, 3>) -> Option<Tensor<B, 3>>,
    ) -> AdaptedCodes<B> {
        let (dims, wanted) = (support.embeddings.dims(), self.config.features);
        assert_eq!(dims[2], wanted, "LEO of {wanted} features does not take embeddings {dims:?}");
        let support = support.with_embeddings(self.config.lengths.of(support.embeddings.clone()));
        let spread = (2.0 / (support.ways + wanted) as f64).sqrt();
        let decoded = |codes| Draw::new(times(codes, self.decoder.val()), spread, &noise);
        let (labels, shares) = (support.one_hot(), self.shares(&support));
        // By weights, of the loss of the support.
        let slope = |weights: Tensor<B, 3>| {
            let seen = self.dropped(support.embeddings.clone());
            let errors =
                softmax(product(seen.clone(), weights.swap_dims(1, 2)), 2) - labels.clone();
            product((errors * shares.clone()).swap_dims(1, 2), seen)
        };
        let rates = self.rates.val().unsqueeze::<3>();
        let moments = self.moments(&support);
        let first = Draw::new(moments.clone(), 0.0, &noise).value;
        let mut codes = first.clone();
        let mut weights = decoded(codes.clone());
        for _ in 0..self.config.steps {
            let by_moments = weights.by_moments(slope(weights.value.clone()));
            codes = codes - times(by_moments, self.decoder.val().transpose()) * rates.clone();
            weights = decoded(codes.clone());
        }
        let rates = self.fine_tuning_rates.val().unsqueeze::<3>();
        let step = |weights: Tensor<B, 3>, _| weights.clone() - slope(weights) * rates.clone();
        let weights = (0..self.config.fine_tuning_steps).fold(weights.value, step);
        AdaptedCodes { weights, moments, codes: [first, codes] }
    }

    /// Means and deviations of the codes of `support`, `[t, ways, 2l]`.
    fn moments(&self, support: &EmbeddedSupport<B>) -> Tensor<B, 3> {
        let ([tasks, examples, _], latents) = (support.embeddings.dims(), self.config.latents);
        let codes = times(self.dropped(support.embeddings.clone()), self.encoder.val());
        let [first, second, third] = [0, 1, 2].map(|layer| self.relations[layer].val());
        // Codes side by side times a matrix are the sum of the codes times its halves, and the last
        // layer can wait for the means, being linear.
        let [left, right] = [0, 1].map(|half| first.clone().narrow(0, half * latents, latents));
        let left = times(codes.clone(), left).reshape([tasks, examples, 1, 2 * latents]);
        let right = times(codes, right).reshape([tasks, 1, examples, 2 * latents]);
        let pairs = relu(left + right).reshape([tasks, examples * examples, 2 * latents]);
        let pairs = relu(times(pairs, second));
        let pairs = pairs.reshape([tasks, examples, examples, 2 * latents]).mean_dim(2);
        let relations = pairs.reshape([tasks, examples, 2 * latents]);
        times(support.with_embeddings(relations).prototypes(), third)
    }

    /// Factors of the losses of the support in the steps of each class, `[t, 1, ways]`.
    fn shares(&self, support: &EmbeddedSupport<B>) -> Tensor<B, 3> {
        let shots = support.one_hot().sum_dim(1);
        match self.config.loss {
            LeoLoss::Sum => shots.ones_like(),
            LeoLoss::PerShot => shots.recip(),
            LeoLoss::Mean => shots.ones_like() / support.labels.dims()[1] as f64,
        }
    }

    fn logits(&self, queries: Tensor<B, 3>, weights: Tensor<B, 3>) -> Tensor<B, 3> {
        product(self.dropped(self.config.lengths.of(queries)), weights.swap_dims(1, 2))
    }

    fn dropped(&self, embeddings: Tensor<B, 3>) -> Tensor<B, 3> {
        let retention = 1.0 - self.config.dropout;
        if retention == 1.0 || !B::ad_enabled(&embeddings.device()) {
            return embeddings;
        }
        let mask = embeddings.random_like(Distribution::Bernoulli(retention));
        embeddings * mask / retention
    }

    fn penalty(&self) -> Tensor<B, 1> {
        let LeoConfig { l2_penalty, orthogonality_penalty, .. } = self.config;
        let decoder = self.decoder.val();
        let squares = |weight: &Param<Tensor<B, 2>>| weight.val().square().sum();
        let outer = squares(&self.encoder) + squares(&self.decoder);
        let all = self.relations.iter().map(squares).fold(outer, |sum, squares| sum + squares);
        let identity = Tensor::eye(self.config.latents, &decoder.device());
        let rows = unit_length(decoder, 1);
        let cosines = product(rows.clone(), rows.transpose());
        let correlated = (cosines - identity).square().mean();
        all * (l2_penalty / 2.0) + correlated * orthogonality_penalty
    }
}

/// Class weights, and the codes that they are decoded from.
struct AdaptedCodes<B: Backend> {
    /// `[t, ways, d]`
    weights: Tensor<B, 3>,
    /// Parameters of the codes' distributions, `[t, ways, 2l]`.
    moments: Tensor<B, 3>,
    /// Before the steps and after them, `[t, ways, l]`.
    codes: [Tensor<B, 3>; 2],
}

impl<B: Backend> AdaptedCodes<B> {
    /// The penalties on codes.
    fn penalty(&self, config: &LeoConfig) -> Tensor<B, 1> {
        let [mean, deviation] = draw::moments(self.moments.clone(), 0.0);
        let squares = mean.square() + deviation.clone().square();
        let divergence = (squares - deviation.log() * 2.0 - 1.0).mean() / 2.0;
        let [first, last] = self.codes.clone();
        let moved = (first - last.detach()).square().mean();
        divergence * config.divergence_penalty + moved * config.code_penalty
    }
}

impl<B: Backend> Head<B> for Leo<B> {
    const NAME: &'static str = "leo";
    const DRAWS: bool = true;

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let (head, ways) = (self.clone(), support.ways);
        let weights = self.adapted(support);
        FittedHead::new(ways, move |queries| head.logits(queries, weights.clone()))
    }

    /// The mean cross-entropy over all queries, and the penalties on parameters.
    fn loss(&self, logits: Tensor<B, 3>, labels: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        cross_entropy(logits, labels) + self.penalty()
    }

    fn train_loss(&self, episode: EmbeddedEpisode<B>) -> (Tensor<B, 1>, Tensor<B, 1>) {
        let (support, queries, labels) = episode.parts();
        let adapted = self.adapted_drawn(support);
        let penalty = adapted.penalty(&self.config);
        let logits = self.logits(queries, adapted.weights);
        let score = accuracies(logits.clone(), labels.clone()).mean();
        (score, self.loss(logits, labels) + penalty)
    }

    fn settings(&self) -> Value {
        json!(self.config)
    }
}

/// `x W` of `[t, m, i]` and `[i, o]`.
fn times<B: Backend>(x: Tensor<B, 3>, weight: Tensor<B, 2>) -> Tensor<B, 3> {
    let ([tasks, rows, inputs], [_, outputs]) = (x.dims(), weight.dims());
    linear(x.reshape([tasks * rows, inputs]), weight, None).reshape([tasks, rows, outputs])
}
