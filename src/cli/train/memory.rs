//! Whether a meta-batch fits, before anything is computed.

use burn::tensor::backend::Backend;
use fewshot::adapt::{Order, SecondOrder};
use fewshot::catalog::{Backbone, BackboneConfig, Estimate, Method as Learning};
use fewshot::episode::Protocol;
use fewshot::hardware::{Bytes, Checkpointing, OptimizerKind};
use fewshot::kernels::route;
use fewshot::models::Conv4Config;

use super::fit::share_of;
use crate::cli::args::Method;
use crate::cli::error::CliError;
use crate::cli::recipe::InnerRecipe;

/// What a training step is made of.
pub(super) struct Step {
    pub(super) method: Method,
    pub(super) inner: Option<InnerRecipe>,
    pub(super) network: Conv4Config,
    pub(super) protocol: Protocol,
    pub(super) checkpointing: Checkpointing,
    /// Tasks that are differentiated at once.
    pub(super) tasks: usize,
}

impl Step {
    /// That a step fits `budget`, or nine tenths of what is `free`, and no tensor is larger than one
    /// may be, by the formulas of the network; where nothing of that is known, it does.
    pub(super) fn check<B: Backend>(
        self,
        budget: Option<Bytes>,
        free: Option<Bytes>,
        largest_buffer: Option<Bytes>,
        device: &B::Device,
    ) -> Result<(), CliError> {
        let budget = match (budget.or(share_of(free)), largest_buffer) {
            (None, None) => return Ok(()),
            (budget, _) => budget.unwrap_or(Bytes(u64::MAX)),
        };
        let learning = self.learning();
        let lanes = self.inner.and_then(|inner| inner.lanes);
        let image = self.network.image;
        let network =
            Backbone::new(self.method.to_string(), image, BackboneConfig::Conv4(self.network));
        let (adam, route) = (OptimizerKind::Adam, route::<B>());
        let estimate = Estimate::new::<B>(&network, learning, self.protocol, adam, route, device);
        let estimate =
            estimate.with_checkpointing(self.checkpointing).with_largest_buffer(largest_buffer);
        let estimate = match lanes {
            Some(lanes) => estimate.with_lanes(lanes),
            None => estimate,
        };
        Ok(estimate.check(self.tasks, budget)?)
    }

    /// The methods that learn rates take more than MAML, as which they are planned: what is refused
    /// would not fit, what is not may not.
    fn learning(&self) -> Learning {
        let Some(inner) = self.inner else { return Learning::ProtoNet };
        let steps = inner.steps;
        match (self.method, inner.order) {
            (Method::Reptile, _) => {
                let all = self.protocol.ways * self.protocol.examples();
                let batch = inner.batch.map_or(all, |[batch, _]| batch);
                Learning::Reptile { steps, batch }
            }
            (Method::Anil, _) => Learning::Anil { steps },
            // The gradient of imaml is solved for at the end of the way, whose steps are not kept.
            (Method::Fomaml | Method::Imaml, _) | (_, Order::First) => {
                Learning::FirstOrder { steps }
            }
            _ if inner.second_order_route == Some(SecondOrder::Unrolled) => {
                Learning::Unrolled { steps }
            }
            _ => Learning::Maml { steps },
        }
    }
}
