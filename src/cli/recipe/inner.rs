//! The inner loop of a run.

use burn::tensor::backend::AutodiffBackend;
use fewshot::adapt::{AdaptError, InnerLoop, InnerRule, Order, Proximal, SecondOrder};
use fewshot::learners::{AdaptableNetwork, Annealing, Maml, QueryNorm};
use serde::{Deserialize, Serialize};

use crate::cli::args::{BatchNormRule, InnerArgs, Method, OrderName, RouteName};
use crate::cli::defaults::{Benchmark, Defaults};
use crate::cli::error::CliError;

/// The inner loop of a method that has one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InnerRecipe {
    pub(crate) rate: f64,
    pub(crate) steps: usize,
    pub(crate) eval_steps: usize,
    pub(crate) order: Order,
    /// The network's own, where there is none.
    pub(crate) second_order_route: Option<SecondOrder>,
    /// Of imaml alone.
    pub(crate) proximal: Option<Proximal>,
    /// Examples of an inner step in training and in the test, of reptile alone.
    pub(crate) batch: Option<[usize; 2]>,
    #[serde(default)]
    pub(crate) query_norm: QueryNorm,
    /// Of maml++ alone.
    pub(crate) annealing: Option<Annealing>,
    /// The network's own number, where there is none.
    pub(crate) lanes: Option<usize>,
}

impl InnerRecipe {
    /// The inner loop of `method`; `None` for a method without one.
    ///
    /// # Errors
    /// When an option is given that the method has no use for, or makes no sense.
    pub(crate) fn new(
        method: Method,
        args: &InnerArgs,
        benchmark: Benchmark,
    ) -> Result<Option<Self>, CliError> {
        let usage = |text: String| Err(CliError::Usage(text));
        if !method.adapts() {
            return match args.given() {
                Some(option) => {
                    usage(format!("{option} is not for {method}, which has no inner loop"))
                }
                None => Ok(None),
            };
        }
        let Defaults { rate, steps, eval_steps, .. } = benchmark.defaults(method);
        let steps = args.inner_steps.unwrap_or(steps);
        let proximal = match (method, args.proximal, args.cg_steps) {
            (Method::Imaml, strength, iterations) => Some(Proximal {
                strength: strength.unwrap_or(2.0),
                iterations: iterations.unwrap_or(5),
            }),
            (_, None, None) => None,
            _ => {
                return usage(format!("--proximal and --cg-steps are for imaml, not for {method}"));
            }
        };
        let batch = match (method, args.inner_batch, args.eval_inner_batch) {
            (Method::Reptile, training, test) => Some([training.unwrap_or(10), test.unwrap_or(5)]),
            (_, None, None) => None,
            _ => return usage(format!("mini-batches are for reptile, not for {method}")),
        };
        let annealing = match (method, args.multi_step_loss, args.first_order_steps) {
            (Method::MamlPlusPlus, multi_step, first_order) => Some(Annealing {
                multi_step: multi_step.unwrap_or(benchmark.multi_step_loss()),
                first_order: first_order.unwrap_or(0),
            }),
            (_, None, None) => None,
            _ => {
                let options = "--multi-step-loss and --first-order-steps are";
                return usage(format!("{options} for maml++, not for {method}"));
            }
        };
        let order = match (method, args.order) {
            (Method::Fomaml, Some(OrderName::Second)) => {
                return usage("fomaml is of first order; --order second is maml".to_owned());
            }
            (Method::Imaml, Some(_)) => {
                return usage("imaml does not differentiate its steps: no --order".to_owned());
            }
            (Method::Reptile, Some(_)) => {
                return usage("reptile does not differentiate its steps: no --order".to_owned());
            }
            (Method::Fomaml | Method::Reptile, _) | (_, Some(OrderName::First)) => Order::First,
            (_, Some(OrderName::Second) | None) => Order::Second,
        };
        if order == Order::First && args.first_order_steps.is_some() {
            return usage(
                "--first-order-steps is before second order: no --order first".to_owned(),
            );
        }
        let steps_are_differentiated = order == Order::Second && method != Method::Imaml;
        if args.second_order_route.is_some() && !steps_are_differentiated {
            return usage(
                "--second-order-route is for exact derivatives of inner steps".to_owned(),
            );
        }
        let rate = args.inner_lr.unwrap_or(rate);
        if !(rate.is_finite() && rate >= 0.0) {
            return usage("--inner-lr must be a number from 0 on".to_owned());
        }
        Ok(Some(Self {
            rate,
            steps,
            eval_steps: args.eval_inner_steps.or(eval_steps).unwrap_or(steps),
            order,
            second_order_route: args.second_order_route.map(|route| match route {
                RouteName::Unrolled => SecondOrder::Unrolled,
                RouteName::Chain => SecondOrder::Chain,
            }),
            proximal,
            batch,
            query_norm: QueryNorm::Together,
            annealing,
            lanes: args.lanes,
        }))
    }

    /// With queries normalised as a test was told.
    pub(crate) fn with_batch_norm(self, asked: Option<BatchNormRule>) -> Self {
        let query_norm = match asked {
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
    ) -> Result<Maml<B, N>, CliError> {
        let inner = self.inner_loop();
        self.set(match method {
            Method::Fomaml => Maml::first_order(network, inner),
            Method::Anil => Maml::anil(network, inner),
            Method::Boil => Maml::boil(network, inner),
            Method::MetaSgd => Maml::meta_sgd(network, inner),
            Method::Imaml => {
                let proximal = self.proximal.ok_or_else(|| incomplete(method))?;
                Maml::implicit(network, inner, proximal)
            }
            Method::MetaCurvature => Maml::meta_curvature(network, inner),
            Method::MamlPlusPlus => {
                Maml::plus_plus(network, inner, self.annealing.unwrap_or_default())
            }
            Method::Cavia => Maml::cavia(network, inner),
            Method::Reptile => {
                let [batch, test] = self.batch.ok_or_else(|| incomplete(method))?;
                Maml::reptile(network, inner.with_rule(InnerRule::reptile()), batch)
                    .map(|learner| learner.with_test_batch(test))
            }
            Method::Maml => Maml::new(network, inner),
            _ => return Err(CliError::Usage(format!("{method} is for classes alone"))),
        })
    }

    pub(super) fn inner_loop(&self) -> InnerLoop {
        InnerLoop::new(self.steps, self.rate).with_order(self.order)
    }

    pub(super) fn set<B: AutodiffBackend, N: AdaptableNetwork<B>>(
        &self,
        learner: Result<Maml<B, N>, AdaptError>,
    ) -> Result<Maml<B, N>, CliError> {
        let learner = learner
            .map_err(|error| CliError::Usage(error.to_string()))?
            .with_test_steps(self.eval_steps)
            .with_query_norm(self.query_norm);
        let learner = match self.second_order_route {
            Some(route) => learner.with_second_order(route),
            None => learner,
        };
        Ok(match self.lanes {
            Some(lanes) => learner.with_lanes(lanes),
            None => learner,
        })
    }
}

/// A recipe read from a file may be anything.
fn incomplete(method: Method) -> CliError {
    CliError::Failed(format!("the settings of {method} are not complete"))
}
