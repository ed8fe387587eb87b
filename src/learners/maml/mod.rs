//! Model-agnostic meta-learning, and what its relatives share with it.

mod adapted;
mod annealing;
mod gradient;
mod labelled;

pub use adapted::AdaptedMaml;
pub use annealing::Annealing;

use std::ops::Range;

use burn::backend::Autodiff;
use burn::module::{HasAutodiffModule, Module};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::{BnStatistics, Classifier, Encoder};
use serde_json::{Value, json};

use super::{Adapted, Learner};
use crate::adapt::{
    AdaptError, InnerLoop, InnerRates, InnerSteps, Lifted, Proximal, RateKind, SecondOrder, Slope,
    filled, lift, lifted_slope, stacked, values,
};
use crate::episode::{EpisodeBatch, Support};
use labelled::Labelled;

/// An encoder that can be adapted: it is there one level of autodiff up as well.
///
/// Every [`Encoder`] is one that derives Burn's `Module` and is an encoder on any backend.
pub trait AdaptableEncoder<B: Backend>:
    Encoder<B> + HasAutodiffModule<Autodiff<B>, TrainModule: Encoder<Autodiff<B>>>
{
}

impl<B: Backend, E> AdaptableEncoder<B> for E where
    E: Encoder<B> + HasAutodiffModule<Autodiff<B>, TrainModule: Encoder<Autodiff<B>>>
{
}

/// Model-agnostic meta-learning: parameters from which a few gradient steps on a task's support
/// lead to a classifier of its queries.
///
/// `min_theta  sum_tasks L_query(U(theta))`, where `U` makes the steps of an [`InnerLoop`] on the
/// mean cross-entropy of the support. The relatives that differ in the steps alone are made by
/// [`first_order`](Self::first_order), [`anil`](Self::anil), [`boil`](Self::boil),
/// [`meta_sgd`](Self::meta_sgd), [`meta_curvature`](Self::meta_curvature),
/// [`plus_plus`](Self::plus_plus), [`implicit`](Self::implicit) and
/// [`prototypical`](Self::prototypical).
///
/// The tasks of a batch adapt side by side as the lanes of one network where the encoder has
/// [`LANES`](Encoder::LANES), and one after the other where not; the results are the same within
/// rounding.
///
/// # Conventions
/// Batch-norm normalises with the batch at hand, the support in the inner loop and the queries in
/// the outer loss, in training and in the test, as in the authors' code; that makes the test
/// transductive. Gains and shifts adapt like all other parameters, as in learn2learn; the authors'
/// code adapts no shift and has no gain.
///
/// On an autodiff backend, [`Learner::adapt`] differentiates the classifier twice, whatever the
/// order: it panics where a layer of Burn's own cannot be. On a plain backend, and in first-order
/// training, every layer serves.
///
/// # Source
/// Finn, Abbeel and Levine, "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks",
/// ICML 2017.
#[derive(Module, Debug)]
pub struct Maml<B: Backend, E> {
    classifier: Classifier<B, E>,
    rates: InnerRates<B>,
    #[module(skip)]
    settings: Settings,
}

/// What a [`Maml`] does, apart from its parameters.
#[derive(Clone, Debug)]
struct Settings {
    name: &'static str,
    inner: InnerLoop,
    /// Which tensors of the classifier the inner loop moves.
    moves: Vec<bool>,
    test_steps: usize,
    route: SecondOrder,
    /// Most tasks in one network.
    lanes: usize,
    /// What the query loss after each step counts for, once no annealing says otherwise.
    step_weights: Vec<f64>,
    annealing: Option<Annealing>,
    /// Meta-steps done.
    meta_steps: u64,
    /// What the head's values begin with.
    head: Head,
    /// What ties the fast weights to where they began, for an implicit outer gradient.
    proximal: Option<Proximal>,
}

/// What an inner loop begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// The learned head.
    Learned,
    /// One made of the support's class means; the slots of its weight and its bias.
    Prototypes([usize; 2]),
}

/// Enough to keep the cores of a CPU busy; more only take memory there.
const LANES: usize = 8;

impl<B: Backend, E: AdaptableEncoder<B>> Maml<B, E> {
    /// The paper's learner: `inner` in training, and as many steps in the test.
    ///
    /// # Errors
    /// When `inner` makes no sense, has no step, or moves no parameter.
    pub fn new(classifier: Classifier<B, E>, inner: InnerLoop) -> Result<Self, AdaptError> {
        Self::named("maml", classifier, inner, RateKind::Fixed)
    }

    pub(super) fn named(
        name: &'static str,
        classifier: Classifier<B, E>,
        inner: InnerLoop,
        kind: RateKind,
    ) -> Result<Self, AdaptError> {
        inner.check()?;
        if inner.steps == 0 {
            return Err(AdaptError::NoSteps { method: name });
        }
        let (rates, moves) = InnerRates::new(kind, &inner, &classifier)?;
        let mut step_weights = vec![0.0; inner.steps];
        step_weights[inner.steps - 1] = 1.0;
        let settings = Settings {
            name,
            moves,
            test_steps: inner.steps,
            route: SecondOrder::default(),
            lanes: LANES,
            step_weights,
            annealing: None,
            meta_steps: 0,
            head: Head::Learned,
            proximal: None,
            inner,
        };
        Ok(Self { classifier, rates, settings })
    }

    /// Classifiers adapted to tasks.
    fn adapted(&self, support: &Support<B>, statistics: BnStatistics) -> AdaptedMaml<B, E> {
        self.expect_ways(support.ways);
        let inner = self.settings.inner.clone().with_steps(self.settings.test_steps);
        let moves = &self.settings.moves;
        let template: Lifted<B, Classifier<B, E>> = lift(&self.classifier);
        let start = values::<B, _>(&self.classifier);
        let groups = self.groups(support.images.dims()[0]).map(|group| {
            let lanes = group.len();
            let labelled = Labelled::of_support(support, &group);
            let start = self.start(stacked(&start, lanes), &labelled, statistics);
            let support = labelled.lifted();
            let loss =
                |classifier: &Lifted<B, Classifier<B, E>>| support.loss(classifier, statistics).1;
            let slope = lifted_slope(&template, lanes, moves, &loss);
            let slope = self.pulled(&slope, &start);
            let steps = InnerSteps { inner: &inner, moves, slope: &*slope, lanes };
            let fast = steps.run(start.clone(), &self.rates);
            (group, filled::<B, _>(self.classifier.clone(), &fast.values, lanes))
        });
        AdaptedMaml::new(groups.collect(), statistics)
    }
}

impl<B: Backend, E: Encoder<B>> Maml<B, E> {
    /// With another number of inner steps in the test, and in [`Learner::adapt`].
    pub fn with_test_steps(self, test_steps: usize) -> Self {
        self.set(|settings| settings.test_steps = test_steps)
    }

    /// With another way to the exact derivative.
    pub fn with_second_order(self, route: SecondOrder) -> Self {
        self.set(|settings| settings.route = route)
    }

    /// With at most so many tasks in one network, 8 unless said: more keep a larger device busy, and
    /// take memory in proportion.
    ///
    /// # Panics
    /// On 0.
    pub fn with_lanes(self, lanes: usize) -> Self {
        assert!(lanes > 0, "a network has at least one lane");
        self.set(|settings| settings.lanes = lanes)
    }

    /// With the query loss after every step in the outer loss, times these weights: the multi-step
    /// loss of MAML++, here the same in every meta-step; where there is an [`Annealing`], once it is
    /// over. An implicit gradient is that of the last one alone.
    ///
    /// # Panics
    /// Unless there is one weight a step.
    pub fn with_step_weights(self, weights: Vec<f64>) -> Self {
        let (found, wanted) = (weights.len(), self.settings.inner.steps);
        assert_eq!(found, wanted, "{wanted} steps need as many weights, found {found}");
        self.set(|settings| settings.step_weights = weights)
    }

    pub(super) fn with_head(self, head: Head) -> Self {
        self.set(|settings| settings.head = head)
    }

    /// What the inner loop begins with, from the learned values of each task; on their graph.
    fn start(
        &self,
        mut values: Vec<Tensor<B, 1>>,
        support: &Labelled<B>,
        statistics: BnStatistics,
    ) -> Vec<Tensor<B, 1>> {
        if let Head::Prototypes([weight, bias]) = self.settings.head {
            let classifier = filled::<B, _>(self.classifier.clone(), &values, support.tasks());
            [values[weight], values[bias]] = support.prototypical_head(&classifier, statistics);
        }
        values
    }

    pub(super) fn with_proximal(self, proximal: Proximal) -> Self {
        self.set(|settings| settings.proximal = Some(proximal))
    }

    /// The slope that the steps follow.
    fn pulled<'a>(&self, slope: &'a Slope<'a, B>, start: &'a [Tensor<B, 1>]) -> Box<Slope<'a, B>> {
        match self.settings.proximal {
            Some(proximal) => Box::new(proximal.slope(slope, start)),
            None => Box::new(slope),
        }
    }

    fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// The network that the inner loop begins with.
    pub fn classifier(&self) -> &Classifier<B, E> {
        &self.classifier
    }

    /// The learned inner rates.
    pub fn rates(&self) -> &InnerRates<B> {
        &self.rates
    }

    /// The inner loop of training.
    pub fn inner(&self) -> &InnerLoop {
        &self.settings.inner
    }

    /// The tasks that share a network.
    fn groups(&self, tasks: usize) -> impl Iterator<Item = Range<usize>> + use<B, E> {
        let lanes = if E::LANES { self.settings.lanes } else { 1 };
        (0..tasks).step_by(lanes).map(move |first| first..(first + lanes).min(tasks))
    }

    fn check_ways(&self, wanted: usize) -> Result<(), AdaptError> {
        match self.classifier.ways() {
            found if found == wanted => Ok(()),
            found => Err(AdaptError::Ways { wanted, found }),
        }
    }

    fn expect_ways(&self, wanted: usize) {
        if let Err(error) = self.check_ways(wanted) {
            panic!("{error}");
        }
    }
}

impl<B: Backend, E: AdaptableEncoder<B>> Learner<B> for Maml<B, E> {
    type Adapted = AdaptedMaml<B, E>;

    fn adapt(&self, support: &Support<B>) -> AdaptedMaml<B, E> {
        self.adapted(support, self.statistics())
    }

    /// The support is normalised in the inner loop, the queries of each task in their prediction;
    /// nothing is tracked. Running averages are those of an encoder that came with them.
    fn logits(&self, batch: &EpisodeBatch<B>, statistics: BnStatistics) -> Tensor<B, 3> {
        let statistics = match statistics {
            BnStatistics::Running => BnStatistics::Running,
            BnStatistics::Batch | BnStatistics::Track => BnStatistics::Batch,
        };
        self.adapted(&batch.support, statistics).predict(batch.queries.clone())
    }

    fn statistics(&self) -> BnStatistics {
        BnStatistics::Batch
    }

    fn architecture(&self) -> String {
        format!("{}({})", self.settings.name, self.classifier.architecture())
    }

    fn settings(&self) -> Value {
        let Settings { inner, step_weights, annealing, proximal, .. } = &self.settings;
        json!({
            "inner": inner,
            "step_weights": step_weights,
            "annealing": annealing,
            "proximal": proximal,
        })
    }
}
