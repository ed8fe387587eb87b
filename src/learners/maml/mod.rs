//! Model-agnostic meta-learning, and what its relatives share with it.

mod adapted;
mod annealing;
mod batches;
mod body;
mod builder;
mod gradient;
mod relatives;
mod worker_pools;

pub use adapted::AdaptedMaml;
pub use annealing::Annealing;

use std::ops::Range;
use std::sync::Once;

use burn::backend::Autodiff;
use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::BnStatistics;
use serde::Serialize;
use serde_json::{Value, json};

use super::{AdaptableNetwork, Adapted, Learner, Network, QueryNorm};
use crate::adapt::{
    AdaptError, GradientFn, InnerLoop, InnerRates, InnerRule, InnerSteps, Lifted, Mask, Proximal,
    RateKind, SecondOrder, filled, lift, lifted, lifted_gradient_fn, slots, tiled, values,
    within_curvature,
};
use crate::episode::{Examples, Measure, TaskKind};
use crate::precision::Precision;
use adapted::Group;
use batches::InnerBatches;
use body::Body;
use relatives::prototypical_head;
use worker_pools::on_device;

/// Model-agnostic meta-learning: parameters from which a few gradient steps on a task's support
/// lead to a classifier of its queries or, in regression, to the function that their values come
/// from.
///
/// `min_theta  sum_tasks L_query(U(theta))`, where `U` makes the steps of an [`InnerLoop`] on the
/// mean loss of the support: cross-entropy for a [`Classifier`](fewshot_models::Classifier),
/// squared error for an [`Mlp`](fewshot_models::Mlp), or what another [`Network`]'s kind of task
/// has. The relatives are made by [`first_order`](Self::first_order), [`anil`](Self::anil),
/// [`boil`](Self::boil), [`meta_sgd`](Self::meta_sgd), [`meta_curvature`](Self::meta_curvature),
/// [`plus_plus`](Self::plus_plus), [`implicit`](Self::implicit),
/// [`prototypical`](Self::prototypical), [`cavia`](Self::cavia) and [`reptile`](Self::reptile).
///
/// Where the number of [`lanes`](Network::lanes) is above 1, the tasks of a batch adapt side by side as the lanes
/// of networks, otherwise one by one; the results are the same within rounding. In meta-training on
/// a CPU every thread may have a network of its own at the same time; the results do not depend on
/// the number of threads.
///
/// # Conventions
/// Batch-norm normalises with the batch at hand, the support in the inner loop and the queries in
/// the outer loss, in training and in the test, as in the authors' code; that makes the test
/// transductive, unless it is told [`QueryNorm::Alone`]. Gains and shifts adapt like all other
/// parameters, as in learn2learn; the authors' code adapts no shift and has no gain.
///
/// Inner losses of a network that computes in `f16` are scaled by a constant 64, in training and in
/// the test. The [`GradScaler`](crate::precision::GradScaler) of the outer loss has no part in it:
/// an inner loop that overflows ends training, with its task and step, as one that diverges.
///
/// On an autodiff backend, [`Learner::adapt`] differentiates the network twice, whatever the
/// order: it panics if the network has a layer of Burn's own that cannot be differentiated twice.
/// On a plain backend, and in first-order training, every layer serves.
///
/// # Source
/// Finn, Abbeel and Levine, "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks",
/// ICML 2017.
#[derive(Module, Debug)]
pub struct Maml<B: Backend, N> {
    network: N,
    rates: InnerRates<B>,
    #[module(skip)]
    settings: Settings,
}

/// Settings of a [`Maml`], apart from its parameters.
#[derive(Clone, Debug)]
struct Settings {
    name: &'static str,
    inner: InnerLoop,
    /// Tensors of the network that the inner loop adapts.
    adapted: Vec<bool>,
    /// True if these are all in the network's head, and no rates are learned.
    head_alone: bool,
    test_steps: usize,
    route: SecondOrder,
    /// Most tasks in one network, if that was said.
    lanes: Option<usize>,
    /// Weight of the query loss after each step, once no annealing says otherwise.
    step_weights: Vec<f64>,
    annealing: Option<Annealing>,
    /// Meta-steps done.
    meta_steps: u64,
    /// Initial values of the head.
    head: Head,
    /// Examples that the outer loop learns from.
    outer: Outer,
    /// Examples of an inner step in training and in the test; all, where there is none.
    batch: [Option<usize>; 2],
    query_norm: QueryNorm,
}

/// Examples that the outer loop learns from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outer {
    /// The gradient of the query loss by what the inner loop began with.
    Gradient,
    /// The same for all but what the inner loop adapts, whose start is never updated.
    GradientOfTheRest,
    /// The gradient at the minimum of a proximal inner loop.
    Implicit(Proximal),
    /// Start minus end of an inner loop on support and queries in one batch, in place of a gradient.
    #[serde(rename = "way")]
    Displacement,
}

/// Initial values of an inner loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// The learned head.
    Learned,
    /// One made of the support's class means; the slots of its weight and its bias.
    Prototypes([usize; 2]),
}

impl<B: Backend, N: AdaptableNetwork<B>> Maml<B, N> {
    /// The paper's learner: `inner` in training, and as many steps in the test.
    ///
    /// # Errors
    /// When `inner` makes no sense, has no step, or adapts no parameter.
    pub fn new(network: N, inner: InnerLoop) -> Result<Self, AdaptError> {
        Self::named("maml", network, inner, RateKind::Fixed)
    }

    fn named(
        name: &'static str,
        network: N,
        inner: InnerLoop,
        kind: RateKind,
    ) -> Result<Self, AdaptError> {
        inner.check()?;
        if inner.steps == 0 {
            return Err(AdaptError::NoSteps { method: name });
        }
        let (rates, adapted) = InnerRates::new(kind, &inner, &network)?;
        let head = Mask::Only(vec![network.head()]);
        let in_head = slots::<B, _>(&network).into_iter().map(|slot| head.has(&slot.path));
        let moves_body = in_head.zip(&adapted).any(|(in_head, &adapted)| adapted && !in_head);
        let mut step_weights = vec![0.0; inner.steps];
        step_weights[inner.steps - 1] = 1.0;
        let settings = Settings {
            name,
            adapted,
            head_alone: !moves_body && kind == RateKind::Fixed,
            test_steps: inner.steps,
            route: SecondOrder::default(),
            lanes: None,
            step_weights,
            annealing: None,
            meta_steps: 0,
            head: Head::Learned,
            outer: Outer::Gradient,
            batch: [None; 2],
            query_norm: QueryNorm::Together,
            inner,
        };
        Ok(Self { network, rates, settings })
    }

    /// Networks adapted to tasks.
    fn adapted(&self, support: &Support<B, N>, statistics: BnStatistics) -> AdaptedMaml<B, N> {
        self.expect_size(N::Kind::outputs(support));
        let inner = self.settings.inner.clone().with_steps(self.settings.test_steps);
        let (adapted, shared) = (&self.settings.adapted, self.shares_body());
        let template: Lifted<B, N> = lift(&self.network);
        let start = values::<B, _>(&self.network);
        let outputs = N::Kind::outputs(support);
        let groups = self.groups(N::Kind::tasks(support)).map(|group| {
            let lanes = group.len();
            let examples = self.padded(N::Kind::support_of(support, group.clone()));
            let start = self.start(self.stacked(&start, lanes), &examples, statistics);
            let companions = match (self.settings.query_norm, statistics) {
                (QueryNorm::Together, _) | (_, BnStatistics::Running) => None,
                (QueryNorm::Alone, _) => Some(examples.inputs.clone()),
            };
            let support = InnerBatches::new(lifted_examples(examples), self.settings.batch[1], 0);
            let body = Body::new(shared);
            let loss = |step: usize, network: &Lifted<B, N>| {
                body.inner_loss(network, &support.at(step), statistics)
            };
            let gradient_fn =
                lifted_gradient_fn(&template, adapted, self.network.precision(), &loss);
            let gradient_fn = self.with_proximal_term(&gradient_fn, &start, lanes);
            let steps = InnerSteps { inner: &inner, adapted, gradient_fn: &*gradient_fn, lanes };
            let fast = steps.run(start.clone(), &self.rates);
            let network = filled::<B, _>(self.network.clone(), &fast.values);
            Group { tasks: group, network, shared, companions, outputs }
        });
        AdaptedMaml { groups: groups.collect(), statistics }
    }
}

/// Examples that the tasks of a network are learned from.
type Support<B, N> = <<N as Network<B>>::Kind as TaskKind>::Support<B>;

/// The tasks of a network.
type Batch<B, N> = <<N as Network<B>>::Kind as TaskKind>::Batch<B>;

/// The same examples one level of autodiff up.
fn lifted_examples<B: Backend>(examples: Examples<B>) -> Examples<Autodiff<B>> {
    Examples { inputs: lifted(examples.inputs), targets: lifted(examples.targets) }
}

impl<B: Backend, N: Network<B>> Maml<B, N> {
    /// Initial values of the inner loop, from the learned values of each task; on their graph.
    fn start(
        &self,
        mut values: Vec<Tensor<B, 1>>,
        support: &Examples<B>,
        statistics: BnStatistics,
    ) -> Vec<Tensor<B, 1>> {
        if let Head::Prototypes([weight, bias]) = self.settings.head {
            let network = filled::<B, _>(self.network.clone(), &values);
            [values[weight], values[bias]] = prototypical_head(&network, support, statistics);
        }
        values
    }

    /// True if tasks side by side share all of the network but its head, where the head alone adapts.
    fn shares_body(&self) -> bool {
        let Settings { head_alone, head, outer, .. } = &self.settings;
        *head_alone && *head == Head::Learned && *outer == Outer::Gradient
    }

    /// Number of lanes of each tensor of a network of so many tasks: one, where the tasks share the tensor.
    fn lanes_by_tensor(&self, tasks: usize) -> impl Iterator<Item = usize> {
        let shared = self.shares_body();
        self.settings.adapted.iter().map(move |adapted| if shared && !adapted { 1 } else { tasks })
    }

    /// These values as those of a network of so many tasks.
    fn stacked(&self, values: &[Tensor<B, 1>], tasks: usize) -> Vec<Tensor<B, 1>> {
        let each = values.iter().zip(self.lanes_by_tensor(tasks));
        each.map(|(value, lanes)| tiled(value.clone(), lanes)).collect()
    }

    /// The gradient of the inner loss, with the proximal term if there is one, and then for steps of a
    /// length that the curvature allows: the implicit gradient is that of a minimum, and does not see
    /// how steps of a fixed length miss it. Damped, the steps are plain ones.
    fn with_proximal_term<'a>(
        &self,
        gradient_fn: &'a GradientFn<'a, B>,
        start: &'a [Tensor<B, 1>],
        lanes: usize,
    ) -> Box<GradientFn<'a, B>> {
        let Outer::Implicit(proximal) = self.settings.outer else { return Box::new(gradient_fn) };
        if proximal.damped {
            return Box::new(gradient_fn);
        }
        let pulled = proximal.gradient_fn(gradient_fn, start);
        let inner = &self.settings.inner;
        match inner.rule {
            InnerRule::GradientDescent => within_curvature(pulled, inner.rate, lanes),
            _ => Box::new(pulled),
        }
    }

    /// The network that the inner loop begins with.
    pub fn network(&self) -> &N {
        &self.network
    }

    /// Learned tensors of the inner loop besides the network: rates, matrices, gains and shifts.
    pub fn rates(&self) -> &InnerRates<B> {
        &self.rates
    }

    /// The inner loop of training.
    pub fn inner(&self) -> &InnerLoop {
        &self.settings.inner
    }

    /// The tasks that share a network.
    fn groups(&self, tasks: usize) -> impl Iterator<Item = Range<usize>> + use<B, N> {
        let own = self.network.lanes();
        if own == 1 && tasks > 1 {
            static NOTED: Once = Once::new();
            let text = "has no lanes, tasks adapt one by one";
            NOTED.call_once(|| log::warn!("{} {text}", self.network.describe()));
        }
        let lanes = match self.settings.lanes {
            _ if own == 1 => 1,
            Some(lanes) => lanes.min(tasks),
            None if on_device::<B>() => tasks,
            None if self.shares_body() => 2 * own,
            None => own,
        };
        (0..tasks).step_by(lanes.max(1)).map(move |first| first..(first + lanes).min(tasks))
    }

    /// True if the inner loop begins with a head made of the support's prototypes.
    fn has_made_head(&self) -> bool {
        self.settings.head != Head::Learned
    }

    /// The examples with a target of zero for each output beyond the task's classes.
    fn padded(&self, Examples { inputs, targets }: Examples<B>) -> Examples<B> {
        let [tasks, examples, ways] = targets.dims();
        let missing = self.network.output_size().saturating_sub(ways);
        if missing == 0 {
            return Examples { inputs, targets };
        }
        let options = (&targets.device(), targets.dtype());
        let zeros = Tensor::zeros([tasks, examples, missing], options);
        Examples { inputs, targets: Tensor::cat(vec![targets, zeros], 2) }
    }

    fn check_size(&self, size: usize) -> Result<(), AdaptError> {
        match (self.network.output_size(), N::Kind::MEASURE) {
            (outputs, _) if outputs == size => Ok(()),
            (outputs, _) if outputs > size && self.has_made_head() => Ok(()),
            (outputs, Measure::Accuracy) => Err(AdaptError::Ways { ways: size, outputs }),
            (outputs, Measure::SquaredError) => Err(AdaptError::Outputs { targets: size, outputs }),
        }
    }

    fn expect_size(&self, size: usize) {
        self.check_size(size).unwrap_or_else(|error| panic!("{error}"));
    }
}

impl<B: Backend, N: AdaptableNetwork<B>> Learner<B, N::Kind> for Maml<B, N> {
    type Adapted = AdaptedMaml<B, N>;

    fn adapt(&self, support: &Support<B, N>) -> AdaptedMaml<B, N> {
        self.adapted(support, self.statistics())
    }

    /// The support is normalised in the inner loop, the queries of each task in their prediction;
    /// nothing is tracked. Running averages are those of an encoder that came with them.
    fn outputs(&self, batch: &Batch<B, N>, statistics: BnStatistics) -> Tensor<B, 3> {
        let statistics = match statistics {
            BnStatistics::Running => BnStatistics::Running,
            BnStatistics::Batch | BnStatistics::Track => BnStatistics::Batch,
        };
        let queries = N::Kind::queries(batch);
        self.adapted(N::Kind::support(batch), statistics).predict(queries)
    }

    fn statistics(&self) -> BnStatistics {
        BnStatistics::Batch
    }

    fn query_norm(&self) -> QueryNorm {
        self.settings.query_norm
    }

    fn precision(&self) -> Precision {
        self.network.precision()
    }

    fn architecture(&self) -> String {
        format!("{}({})", self.settings.name, self.network.describe())
    }

    fn settings(&self) -> Value {
        let Settings {
            inner, test_steps, step_weights, annealing, outer, batch, query_norm, ..
        } = &self.settings;
        json!({
            "inner": inner,
            "test_steps": test_steps,
            "step_weights": step_weights,
            "annealing": annealing,
            "outer": outer,
            "batch": batch,
            "query_norm": query_norm,
            "second_moments_last": self.rates.has_lasting_moments(),
        })
    }
}
