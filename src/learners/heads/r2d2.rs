use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::checked::{not_zero, positive};
use super::linear_solve::inverses;
use super::{EmbeddedSupport, FittedHead, Head, LengthNormalisation, LogitFormula, NoFormula};

/// Combination of the squared errors of a ridge regression over examples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RidgeErrors {
    /// Their sum, beside which the penalty weighs less the more examples there are.
    #[default]
    Summed,
    /// Their mean over examples.
    Averaged,
}

/// Configuration of an [`R2d2`].
#[derive(Config, Debug)]
pub struct R2d2Config {
    /// Penalty at first, or for ever when it is not learned.
    #[config(default = 50.0)]
    pub lambda: f64,
    /// True if the penalty is learned, as a logarithm, so that it stays positive.
    #[config(default = true)]
    pub learned_lambda: bool,
    /// Combination of squared errors over examples.
    #[config(default = "RidgeErrors::Summed")]
    pub errors: RidgeErrors,
    /// True if the regression has an intercept, penalised like its weights.
    #[config(default = false)]
    pub intercept: bool,
    /// Initial factor of the predictions, which is learned. Predictions are about 0 to 1, so 1
    /// leaves the softmax of many classes almost even until it has grown.
    #[config(default = 10.0)]
    pub scale: f64,
}

impl R2d2Config {
    /// The settings of the authors' code: mean errors, an intercept, a penalty fixed at 50.
    ///
    /// Its scale starts at 1e-4 on mini-ImageNet, and at 10 on CIFAR-FS and Omniglot.
    pub fn of_authors_code(scale: f64) -> Self {
        Self::new()
            .with_errors(RidgeErrors::Averaged)
            .with_intercept(true)
            .with_learned_lambda(false)
            .with_scale(scale)
    }

    /// The head with its first parameters.
    ///
    /// # Panics
    /// When the penalty is not a positive number, or the scale is zero or not finite.
    pub fn init<B: Backend>(&self, device: &B::Device) -> R2d2<B> {
        let Self { lambda, learned_lambda, scale, .. } = *self;
        positive("the penalty of a ridge regression", lambda);
        not_zero("the scale of R2-D2", scale);
        let parameter =
            |value: f64| Param::from_tensor(Tensor::from_floats([value as f32], device));
        R2d2 {
            log_lambda: learned_lambda.then(|| parameter(lambda.ln())),
            scale: parameter(scale),
            bias: parameter(0.0),
            config: self.clone(),
        }
    }
}

/// Ridge regression from embeddings to classes, through which the encoder learns.
///
/// `logits(x) = scale x W + bias` with `W = X^T (X X^T + lambda I)^-1 Y`, where `X` are the
/// embeddings of the support and `Y` is 1 at their classes and 0 elsewhere; with more examples than
/// features the same as `W = (X^T X + lambda I)^-1 X^T Y`. Scale, bias and `lambda` are learned with
/// the encoder. Logits can be differentiated twice.
///
/// # Conventions
/// The paper learns `lambda`, and gives no value to start from. A `lambda` of 50 and no intercept are
/// the choice of LibFewShot, which learns `lambda` itself in place of its logarithm and starts from a
/// scale of 1. The scale of 10 is that of the authors' code on Omniglot, which differs otherwise:
/// [`R2d2Config::of_authors_code`]. The ridge regression of MetaOptNet (Lee et al., CVPR 2019) is this
/// with a scale of 2 and a penalty fixed at 50.
///
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::Tensor};
/// # use fewshot::learners::heads::{EmbeddedSupport, Head, R2d2Config};
/// # let device = Default::default();
/// let support = Tensor::<Flex, 3>::from_data([[[1.0, 0.0], [0.0, 2.0]]], &device);
/// let support = EmbeddedSupport::new(support, Tensor::from_data([[0, 1]], &device), 2);
/// let config = R2d2Config::new().with_lambda(1.0).with_scale(1.0);
/// let head = config.init(&device).fit(support);
/// let logits = head.logits(Tensor::from_data([[[1.0, 1.0]]], &device));
/// let expected = Tensor::<Flex, 3>::from_data([[[0.5, 0.4]]], &device);
/// assert!((logits - expected).abs().max().into_scalar() < 1e-6);
/// ```
///
/// # Source
/// Bertinetto, Henriques, Torr and Vedaldi, "Meta-learning with differentiable closed-form solvers",
/// ICLR 2019.
#[derive(Module, Debug)]
pub struct R2d2<B: Backend> {
    log_lambda: Option<Param<Tensor<B, 1>>>,
    scale: Param<Tensor<B, 1>>,
    bias: Param<Tensor<B, 1>>,
    #[module(skip)]
    config: R2d2Config,
}

impl<B: Backend> R2d2<B> {
    /// `matrices + lambda I`, for squared errors of `examples`.
    fn penalised(&self, matrices: Tensor<B, 3>, examples: usize) -> Tensor<B, 3> {
        let size = matrices.dims()[1];
        let identity = Tensor::<B, 2>::eye(size, &matrices.device()).unsqueeze::<3>();
        let times = match self.config.errors {
            RidgeErrors::Summed => 1.0,
            RidgeErrors::Averaged => examples as f64,
        };
        let penalty = match &self.log_lambda {
            Some(log) => identity * (log.val().exp() * times).unsqueeze::<3>(),
            None => identity * (self.config.lambda * times),
        };
        matrices + penalty
    }

    /// Weights `[t, d, ways]` of the support's regression, `d` with the intercept's ones.
    fn weights(&self, x: Tensor<B, 3>, targets: Tensor<B, 3>) -> Tensor<B, 3> {
        let [_, examples, features] = x.dims();
        let turned = x.clone().swap_dims(1, 2);
        if examples <= features || features == 0 {
            let kernel = self.penalised(product(x, turned.clone()), examples);
            return product(turned, product(inverses(kernel), targets));
        }
        let moments = self.penalised(product(turned.clone(), x), examples);
        product(inverses(moments), product(turned, targets))
    }

    /// Weights `[t, d, ways]`, and intercepts `[t, 1, ways]` or one for all.
    fn layer(&self, support: EmbeddedSupport<B>) -> (Tensor<B, 3>, Tensor<B, 3>) {
        let [tasks, examples, features] = support.embeddings.dims();
        let (scale, bias) = (self.scale.val().unsqueeze::<3>(), self.bias.val().unsqueeze::<3>());
        let targets = support.one_hot();
        if !self.config.intercept || features == 0 {
            return (self.weights(support.embeddings, targets) * scale, bias);
        }
        let ones = Tensor::ones([tasks, examples, 1], &targets.device());
        let weights = self.weights(Tensor::cat(vec![support.embeddings, ones], 2), targets);
        let intercept = weights.clone().narrow(1, features, 1) * scale.clone() + bias;
        (weights.narrow(1, 0, features) * scale, intercept)
    }
}

impl<B: Backend> Head<B> for R2d2<B> {
    const NAME: &'static str = "r2d2";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let ways = support.ways;
        let (weights, intercept) = self.layer(support);
        FittedHead::new(ways, move |queries| product(queries, weights.clone()) + intercept.clone())
    }

    fn formula(&self, support: EmbeddedSupport<B>) -> Result<LogitFormula<B>, NoFormula> {
        let (weights, intercept) = self.layer(support);
        Ok(LogitFormula::linear(LengthNormalisation::Given, weights, intercept))
    }

    fn settings(&self) -> Value {
        json!(self.config)
    }
}
