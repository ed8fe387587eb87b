//! The inner loop of a run.

use fewshot::adapt::{AdaptError, InnerLoop, InnerRule, Order, Proximal, SecondOrder};
use fewshot::learners::{AdaptableNetwork, Annealing, Maml, QueryNorm};
use serde::{Deserialize, Serialize};

use crate::args::{BatchNormRule, EvalArgs, InnerArgs};
use crate::method::{Benchmark, Family, Method};
use crate::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InnerSettings {
    pub(crate) rate: f64,
    pub(crate) steps: usize,
    pub(crate) eval_steps: usize,
    pub(crate) order: Order,
    /// The network's own, if `None`.
    pub(crate) second_order_route: Option<SecondOrder>,
    /// The proximal term of imaml; `None` for other methods.
    pub(crate) proximal: Option<Proximal>,
    /// Examples of an inner step in training and in the test, of reptile alone.
    pub(crate) batch: Option<[usize; 2]>,
    #[serde(default)]
    pub(crate) query_norm: QueryNorm,
    /// The annealing of maml++; `None` for other methods.
    pub(crate) annealing: Option<Annealing>,
    /// The network's own number, if `None`.
    pub(crate) lanes: Option<usize>,
}

impl InnerSettings {
    /// The inner loop of `method`; `None` for a method without one.
    pub(crate) fn new(
        method: Method,
        args: &InnerArgs,
        benchmark: Benchmark,
    ) -> Result<Option<Self>> {
        if method.family() != Family::InnerLoop {
            let refused = |option| usage!("{option} is not for {method}, which has no inner loop");
            return args.given().map_or(Ok(None), |option| Err(refused(option)));
        }
        let only = |of: Method, given: bool, options: &str| match given && method != of {
            true => Err(usage!("{options} for {of}, not for {method}")),
            false => Ok(method == of),
        };
        let given = args.proximal.is_some() || args.cg_steps.is_some() || args.damped;
        let proximal = only(Method::Imaml, given, "--proximal, --cg-steps and --damped are")?;
        let given = args.inner_batch.is_some() || args.eval_inner_batch.is_some();
        let batch = only(Method::Reptile, given, "mini-batches are")?;
        let given = args.multi_step_loss.is_some() || args.first_order_steps.is_some();
        let options = "--multi-step-loss and --first-order-steps are";
        let annealing = only(Method::MamlPlusPlus, given, options)?;
        let order = order(method, args)?;
        let defaults = method.defaults(benchmark);
        let steps = args.inner_steps.unwrap_or(defaults.steps);
        let rate = args.inner_lr.unwrap_or(defaults.rate);
        if !(rate.is_finite() && rate >= 0.0) {
            return Err(usage!("--inner-lr must be a number from 0 on"));
        }
        Ok(Some(Self {
            rate,
            steps,
            eval_steps: args.eval_inner_steps.or(defaults.eval_steps).unwrap_or(steps),
            order,
            second_order_route: args.second_order_route,
            proximal: proximal.then(|| Proximal {
                strength: args.proximal.unwrap_or(2.0),
                iterations: args.cg_steps.unwrap_or(5),
                damped: args.damped,
            }),
            batch: batch
                .then(|| [args.inner_batch.unwrap_or(10), args.eval_inner_batch.unwrap_or(5)]),
            query_norm: QueryNorm::Together,
            annealing: annealing.then(|| Annealing {
                multi_step: args.multi_step_loss.unwrap_or(benchmark.multi_step_loss()),
                first_order: args.first_order_steps.unwrap_or(0),
            }),
            lanes: args.lanes,
        }))
    }

    /// With the steps, mini-batches and norm of queries of a test.
    pub(crate) fn tested_as(mut self, method: Method, args: &EvalArgs) -> Result<Self> {
        self.eval_steps = args.eval_inner_steps.unwrap_or(self.eval_steps);
        if let Some(batch) = args.eval_inner_batch {
            let Some([_, test]) = &mut self.batch else {
                return Err(usage!("--eval-inner-batch is for reptile, not for {method}"));
            };
            *test = batch;
        }
        Ok(self.with_batch_norm(args.batch_norm))
    }

    pub(crate) fn with_batch_norm(self, rule: Option<BatchNormRule>) -> Self {
        let query_norm = match rule {
            Some(BatchNormRule::Support) => QueryNorm::Alone,
            Some(BatchNormRule::Batch) => QueryNorm::Together,
            Some(BatchNormRule::Running) | None => self.query_norm,
        };
        Self { query_norm, ..self }
    }

    /// The learner of a method that serves any network.
    pub(crate) fn learner<B: AutodiffBackend, N: AdaptableNetwork<B>>(
        &self,
        method: Method,
        network: N,
    ) -> Result<Maml<B, N>> {
        // Settings read from a file may be anything.
        let incomplete = || failed!("the settings of {method} are not complete");
        let inner = self.inner_loop();
        self.set(match method {
            Method::Fomaml => Maml::first_order(network, inner),
            Method::Anil => Maml::anil(network, inner),
            Method::Boil => Maml::boil(network, inner),
            Method::MetaSgd => Maml::meta_sgd(network, inner),
            Method::Imaml => Maml::implicit(network, inner, self.proximal.ok_or_else(incomplete)?),
            Method::MetaCurvature => Maml::meta_curvature(network, inner),
            Method::MamlPlusPlus => {
                Maml::plus_plus(network, inner, self.annealing.unwrap_or_default())
            }
            Method::Cavia => Maml::cavia(network, inner),
            Method::Reptile => {
                let [batch, test] = self.batch.ok_or_else(incomplete)?;
                Maml::reptile(network, inner.with_rule(InnerRule::reptile()), batch)
                    .map(|learner| learner.with_test_batch(test))
            }
            Method::Maml => Maml::new(network, inner),
            _ => return Err(usage!("{method} is for classes alone")),
        })
    }

    pub(super) fn inner_loop(&self) -> InnerLoop {
        InnerLoop::new(self.steps, self.rate).with_order(self.order)
    }

    pub(super) fn set<B: AutodiffBackend, N: AdaptableNetwork<B>>(
        &self,
        learner: Result<Maml<B, N>, AdaptError>,
    ) -> Result<Maml<B, N>> {
        let mut learner = learner
            .map_err(|error| CliError::Usage(error.to_string()))?
            .with_test_steps(self.eval_steps)
            .with_query_norm(self.query_norm);
        if let Some(route) = self.second_order_route {
            learner = learner.with_second_order(route);
        }
        if let Some(lanes) = self.lanes {
            learner = learner.with_lanes(lanes);
        }
        Ok(learner)
    }
}

fn order(method: Method, args: &InnerArgs) -> Result<Order> {
    let order = match (method, args.order) {
        (Method::Fomaml, Some(Order::Second)) => {
            return Err(usage!("fomaml is of first order; --order second is maml"));
        }
        (Method::Imaml | Method::Reptile, Some(_)) => {
            return Err(usage!("{method} does not differentiate its steps: no --order"));
        }
        (Method::Fomaml | Method::Reptile, _) => Order::First,
        (_, order) => order.unwrap_or_default(),
    };
    if order == Order::First && args.first_order_steps.is_some() {
        return Err(usage!("--first-order-steps is before second order: no --order first"));
    }
    let steps_are_differentiated = order == Order::Second && method != Method::Imaml;
    if args.second_order_route.is_some() && !steps_are_differentiated {
        return Err(usage!("--second-order-route is for exact derivatives of inner steps"));
    }
    if args.second_order_route.is_some() && method == Method::Anil {
        return Err(usage!("the steps of anil's head are one graph: no --second-order-route"));
    }
    Ok(order)
}
