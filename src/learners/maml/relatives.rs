//! The constructors of the relatives of MAML.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use fewshot_kernels::product;
use fewshot_models::{BnStatistics, Classifier, Encoder};

use super::{Annealing, Head, Maml, Outer};
use crate::adapt::{AdaptError, InnerLoop, Mask, Order, Proximal, RateKind, setting, slots};
use crate::episode::Examples;
use crate::learners::{AdaptableNetwork, Network};

impl<B: Backend, N: AdaptableNetwork<B>> Maml<B, N> {
    /// First-order MAML: the outer gradient is that of the query loss at the fast weights.
    ///
    /// Training needs first derivatives only, so the network may contain any layer of Burn.
    ///
    /// # Source
    /// Finn, Abbeel and Levine, "Model-Agnostic Meta-Learning for Fast Adaptation of Deep
    /// Networks", ICML 2017, section 5.2.
    pub fn first_order(network: N, inner: InnerLoop) -> Result<Self, AdaptError> {
        Self::named("fomaml", network, inner.with_order(Order::First), RateKind::Fixed)
    }

    /// Almost no inner loop: the head alone adapts, the encoder learns in the outer loop.
    ///
    /// # Source
    /// Raghu, Raghu, Bengio and Vinyals, "Rapid Learning or Feature Reuse? Towards Understanding
    /// the Effectiveness of MAML", ICLR 2020.
    pub fn anil(network: N, inner: InnerLoop) -> Result<Self, AdaptError> {
        let head = Mask::Only(vec![network.head()]);
        Self::named("anil", network, inner.with_mask(head), RateKind::Fixed)
    }

    /// Body only in the inner loop: the encoder alone adapts, the head learns in the outer loop.
    ///
    /// # Source
    /// Oh, Yoo, Kim and Yun, "BOIL: Towards Representation Change for Few-shot Learning", ICLR
    /// 2021.
    pub fn boil(network: N, inner: InnerLoop) -> Result<Self, AdaptError> {
        let body = Mask::Except(vec![network.head()]);
        Self::named("boil", network, inner.with_mask(body), RateKind::Fixed)
    }

    /// Meta-SGD: every value that adapts has a learned rate of its own, `theta - alpha * g`.
    ///
    /// # Conventions
    /// All rates begin at `inner`'s; the authors draw them uniformly from 0.005 to 0.1.
    ///
    /// # Source
    /// Li, Zhou, Chen and Li, "Meta-SGD: Learning to Learn Quickly for Few-Shot Learning", 2017.
    pub fn meta_sgd(network: N, inner: InnerLoop) -> Result<Self, AdaptError> {
        Self::named("meta-sgd", network, inner, RateKind::PerValue)
    }

    /// MAML with a learned rate for each tensor and step, as in MAML++.
    ///
    /// # Conventions
    /// All rates begin at `inner`'s. A test with more steps goes on with the last ones.
    ///
    /// # Source
    /// Antoniou, Edwards and Storkey, "How to train your MAML", ICLR 2019, section 4.
    pub fn with_rates_per_step(network: N, inner: InnerLoop) -> Result<Self, AdaptError> {
        Self::named("maml-lslr", network, inner, RateKind::PerStep)
    }

    /// Meta-Curvature: learned matrices transform the inner gradient `G` of every tensor, one along
    /// each of its modes, `theta - rate * (G x_1 M_1 x_2 M_2 x_3 M_3)`.
    ///
    /// A convolution's weight `[cout, cin, kh, kw]` has matrices for its output channels, its input
    /// channels and all positions of its kernel, a linear weight two, a vector one.
    ///
    /// # Conventions
    /// All matrices begin at the identity, where this is MAML; the rate stays `inner`'s. Under a
    /// rule with momentum or Adam it is the direction that they transform.
    ///
    /// # Source
    /// Park and Oliva, "Meta-Curvature", NeurIPS 2019.
    pub fn meta_curvature(network: N, inner: InnerLoop) -> Result<Self, AdaptError> {
        Self::named("meta-curvature", network, inner, RateKind::Curvature)
    }

    /// MAML++: MAML with a learned rate for each tensor and inner step, gains and shifts of
    /// batch-norm learned for each inner step, and at first the query losses after all steps in the
    /// outer loss and gradients of first order, as `annealing` says.
    ///
    /// A trainer tells the learner where it is by [`at_step`](crate::learners::MetaLearner::at_step).
    ///
    /// # Conventions
    /// Batch-norm normalises with the batch at hand throughout, as does the authors' code, which also
    /// keeps running averages for each step and never reads them. The gains and shifts of a step are used
    /// for its support and the queries after it, and the inner loop does not adapt them; they are
    /// initialised by the network's own. A test with more steps uses the last rates, gains and shifts for
    /// the rest. The cosine schedule of the outer learning rate is the trainer's.
    ///
    /// # Errors
    /// The errors of [`Maml::new`], where gains and shifts are no adapted parameters.
    ///
    /// # Source
    /// Antoniou, Edwards and Storkey, "How to train your MAML", ICLR 2019.
    pub fn plus_plus(
        network: N,
        inner: InnerLoop,
        annealing: Annealing,
    ) -> Result<Self, AdaptError> {
        let learner = Self::named("maml++", network, inner, RateKind::PerStepWithNorms)?;
        Ok(learner.set(|settings| settings.annealing = Some(annealing)))
    }

    /// Implicit MAML: the inner loop minimises the support loss with a proximal term, and the outer
    /// gradient is that of the minimum, `(I + H / strength)^-1 v`, by conjugate gradients on
    /// products with the Hessian `H` of the support loss. The steps to the minimum leave no graph,
    /// so they may be many.
    ///
    /// All parameters adapt, whatever mask `inner` has.
    ///
    /// # Conventions
    /// The implicit gradient is that of a minimum, whatever steps led there, so nothing in training keeps
    /// the loss as flat as steps of a fixed length need it. The rate of a step of gradient descent is
    /// therefore at most `1 / L`, where `L` is how much the gradient changed along the last step. Where a
    /// few steps have not reached a minimum, `I + H / strength` need not be positive definite: conjugate
    /// gradients end where a direction curves down, and at twice the length of `v`. The authors' code
    /// differs in three places, and [`Proximal::damped`] does as it does.
    ///
    /// # Errors
    /// The errors of [`Maml::new`], and one when the strength is not positive or no iteration is made.
    ///
    /// # Source
    /// Rajeswaran, Finn, Kakade and Levine, "Meta-Learning with Implicit Gradients", NeurIPS 2019.
    pub fn implicit(network: N, inner: InnerLoop, proximal: Proximal) -> Result<Self, AdaptError> {
        proximal.check()?;
        let inner = inner.with_mask(Mask::All).with_order(Order::Second);
        let learner = Self::named("imaml", network, inner, RateKind::Fixed)?;
        Ok(learner.set(|settings| settings.outer = Outer::Implicit(proximal)))
    }

    /// CAVIA: the inner loop adapts only a context, a vector that starts at zero for every task;
    /// the outer loop learns the network, which takes this context as an input.
    ///
    /// The network needs a parameter called `context`, as
    /// [`MlpConfig`](fewshot_models::MlpConfig) and [`Conv4Config`](fewshot_models::Conv4Config)
    /// have on demand.
    ///
    /// # Errors
    /// The errors of [`Maml::new`], so also when the network has no context.
    ///
    /// # Source
    /// Zintgraf, Shiarlis, Kurin, Hofmann and Whiteson, "Fast Context Adaptation via
    /// Meta-Learning", ICML 2019.
    pub fn cavia(network: N, inner: InnerLoop) -> Result<Self, AdaptError> {
        let names = slots::<B, _>(&network).into_iter().map(|slot| slot.path);
        let is_context = |path: &String| path.rsplit('.').next() == Some("context");
        let mut contexts: Vec<_> = names.filter(is_context).collect();
        if contexts.is_empty() {
            contexts.push("context".to_owned());
        }
        let inner = inner.with_mask(Mask::Only(contexts));
        let learner = Self::named("cavia", network, inner, RateKind::Fixed)?;
        Ok(learner.set(|settings| settings.outer = Outer::GradientOfTheRest))
    }

    /// Reptile: parameters move towards where the inner loop goes, `theta <- theta + e (theta' -
    /// theta)`.
    ///
    /// Each inner step takes `batch` examples, in random order one after the other. In training
    /// these are examples of support and queries together. In place of the gradient stands `theta -
    /// theta'`, averaged over tasks: [`Sgd`](crate::optim::Sgd) at rate `e` makes the paper's step,
    /// and another optimizer one that the paper proposes in its section 2.
    ///
    /// # Conventions
    /// The second moments of an inner Adam go on from one batch of tasks to the next and to the test,
    /// as in the authors' code, where they go on from task to task; they are saved with the learner. Its
    /// first moments, and the velocity of momentum, begin anew with each task. A test under
    /// [`QueryNorm::Together`](crate::learners::QueryNorm::Together) is what the paper calls
    /// transductive.
    ///
    /// # Errors
    /// The errors of [`Maml::new`], and one when a mini-batch has no example.
    ///
    /// # Source
    /// Nichol, Achiam and Schulman, "On First-Order Meta-Learning Algorithms", 2018.
    pub fn reptile(network: N, inner: InnerLoop, batch: usize) -> Result<Self, AdaptError> {
        setting("mini-batch", "at least 1", batch as f64, batch > 0)?;
        let inner = inner.with_order(Order::First);
        let Self { network, rates, settings } =
            Self::named("reptile", network, inner, RateKind::Fixed)?;
        let rates = rates.with_lasting_moments(&settings.inner, &network, &settings.adapted);
        Ok(Self { network, rates, settings }.set(|settings| {
            settings.outer = Outer::Displacement;
            settings.batch = [Some(batch); 2];
        }))
    }
}

impl<B: Backend, E: Encoder<B>> Maml<B, Classifier<B, E>>
where
    Classifier<B, E>: AdaptableNetwork<B>,
{
    /// Proto-MAML: the inner loop begins with the head that classifies as a prototypical network
    /// does, `2 c_k^T f(x) - |c_k|^2` with the class means `c_k` of the support's embeddings, and
    /// the outer gradient goes through these means as well. The classifier's own head is not used.
    /// Tasks may have fewer classes than the classifier has outputs, of which the others are then
    /// out of the question.
    ///
    /// # Panics
    /// When the head has no bias.
    ///
    /// # Source
    /// Triantafillou et al., "Meta-Dataset: A Dataset of Datasets for Learning to Learn from Few
    /// Examples", ICLR 2020.
    pub fn prototypical(
        classifier: Classifier<B, E>,
        inner: InnerLoop,
    ) -> Result<Self, AdaptError> {
        let slots = slots::<B, _>(&classifier);
        let head = ["head.weight", "head.bias"].map(|name| {
            let slot = slots.iter().position(|slot| slot.path == name);
            slot.expect("a classifier's head has a weight and a bias")
        });
        let learner = Self::named("proto-maml", classifier, inner, RateKind::Fixed)?;
        Ok(learner.set(|settings| settings.head = Head::Prototypes(head)))
    }
}

/// Weight and bias of the linear layer that classifies by squared distances to class means `c`,
/// `2 c` and `-|c|^2`, flattened, task after task. A class without examples has no probability.
pub(super) fn prototypical_head<B: Backend, N: Network<B>>(
    network: &N,
    support: &Examples<B>,
    statistics: BnStatistics,
) -> [Tensor<B, 1>; 2] {
    let features = network.features_lanes(support.inputs.clone(), statistics);
    let shots = support.targets.clone().sum_dim(1);
    let absent = shots.clone().lower_equal_elem(0.0);
    let shots = shots.mask_fill(absent.clone(), 1.0);
    // [t, d, ways]
    let sums = product(features.swap_dims(1, 2), support.targets.clone());
    let means = sums / shots;
    let lengths = (means.clone() * means.clone()).sum_dim(1);
    // No probability; f16 has no larger number.
    let never = if lengths.dtype() == DType::F16 { -6e4 } else { -1e9 };
    let bias = (-lengths).mask_fill(absent, never);
    [(means * 2.0).flatten(0, 2), bias.flatten(0, 2)]
}
