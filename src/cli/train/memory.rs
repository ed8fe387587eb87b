//! Whether a meta-batch fits, before anything is computed.

use burn::tensor::backend::Backend;
use fewshot::adapt::{Order, SecondOrder};
use fewshot::catalog::{Backbone, BackboneConfig, Estimate, Method as Learning};
use fewshot::episode::Protocol;
use fewshot::hardware::{Bytes, OptimizerKind};
use fewshot::kernels::route;

use crate::cli::args::Method;
use crate::cli::error::CliError;
use crate::cli::recipe::InnerRecipe;

/// What a training step is made of.
pub(in crate::cli) struct Step {
    pub(in crate::cli) method: Method,
    pub(in crate::cli) inner: Option<InnerRecipe>,
    pub(in crate::cli) network: BackboneConfig,
    /// What the network takes.
    pub(in crate::cli) input: [usize; 3],
    pub(in crate::cli) protocol: Protocol,
    pub(in crate::cli) meta_batch: u64,
}

impl Step {
    /// That a step fits `budget`, by the formulas of the network; without a budget it does.
    pub(in crate::cli) fn check<B: Backend>(
        self,
        budget: Option<Bytes>,
        device: &B::Device,
    ) -> Result<(), CliError> {
        let Some(budget) = budget else { return Ok(()) };
        let learning = self.learning();
        let lanes = self.inner.and_then(|inner| inner.lanes);
        let network = Backbone::new(self.method.to_string(), self.input, self.network);
        let (adam, route) = (OptimizerKind::Adam, route::<B>());
        let estimate = Estimate::new::<B>(&network, learning, self.protocol, adam, route, device);
        let estimate = match lanes {
            Some(lanes) => estimate.with_lanes(lanes),
            None => estimate,
        };
        let tasks = usize::try_from(self.meta_batch).unwrap_or(usize::MAX);
        Ok(estimate.check(tasks, budget)?)
    }

    fn learning(&self) -> Learning {
        let Some(inner) = self.inner else { return Learning::ProtoNet };
        let steps = inner.steps;
        // A linear network keeps its graph of its own accord.
        let linear = matches!(self.network, BackboneConfig::Mlp(_));
        let unrolled = match inner.second_order_route {
            Some(route) => route == SecondOrder::Unrolled,
            None => linear,
        };
        match (self.method, inner.order) {
            (Method::Anil, _) => Learning::Anil { steps },
            // Its gradient is solved for at the end of the way, whose steps are not kept.
            (Method::Fomaml | Method::Reptile | Method::Imaml, _) | (_, Order::First) => {
                Learning::FirstOrder { steps }
            }
            _ if unrolled => Learning::Unrolled { steps },
            _ => Learning::Maml { steps },
        }
    }
}
