//! Whether a meta-batch fits, before anything is computed.

use fewshot::adapt::{Order, SecondOrder};
use fewshot::catalog::{Backbone, BackboneConfig, Estimate, Method as Learning};
use fewshot::hardware::{Bytes, HardwareError, OptimizerKind};
use fewshot::kernels::{Route, route};

use super::fit::share_of;
use super::images::Training;
use crate::cli::args::Method;
use crate::cli::prelude::*;

impl Training {
    /// That a step fits the budget, or nine tenths of what is free to one of the processes, and no tensor is larger than
    /// one may be, by the formulas of the network. On an accelerator, which takes all tasks at once unless it is told how
    /// many, a single process takes as many as fit; all else is refused. Where nothing of that is known, all fit.
    pub(super) fn fit_memory<B: Backend>(&mut self, place: &Place<B>) -> Result {
        let Self { args, settings, tasks, world } = &*self;
        let largest_buffer = place.info.capabilities.largest_buffer;
        let budget = args.memory_budget.or(share_of(place.free_of(world.size())));
        if budget.is_none() && largest_buffer.is_none() {
            return Ok(());
        }
        let (config, protocol) = (settings.network()?, tasks.train.protocol());
        let (name, image) = (settings.method.to_string(), config.image);
        let network = Backbone::new(name, image, BackboneConfig::Conv4(config));
        let optimizer = match settings.method {
            Method::Reptile => OptimizerKind::Sgd,
            _ => OptimizerKind::Adam,
        };
        let (route, device) = (route::<B>(), &place.device);
        let mut estimate =
            Estimate::new::<B>(&network, self.learning(), protocol, optimizer, route, device)
                .with_checkpointing(args.scale.grad_checkpoint);
        estimate.planner.largest_buffer = largest_buffer;
        if let Some(lanes) = settings.inner.and_then(|inner| inner.lanes) {
            estimate = estimate.with_lanes(lanes);
        }
        let at_once = self.at_once(place.devices.len());
        let refused = estimate.check(at_once, budget.unwrap_or(Bytes(u64::MAX)));
        let scale = &mut self.args.scale;
        // Processes would have to agree.
        let may_cut = matches!(route, Route::Device(_))
            && self.world.size() == 1
            && !scale.auto_batch
            && scale.micro_batch.is_none();
        match refused {
            Err(HardwareError::TooManyTasks { fit: Some(fit @ 1..), .. })
            | Err(HardwareError::LargestBuffer { fit: Some(fit @ 1..), .. })
                if may_cut =>
            {
                print_status(format_args!("{fit} of {at_once} tasks fit in memory at once"));
                scale.micro_batch = Some(fit);
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Tasks that are differentiated at once, at least.
    fn at_once(&self, devices: usize) -> usize {
        let scale = &self.args.scale;
        let meta_batch = usize::try_from(self.tasks.meta_batch).unwrap_or(usize::MAX);
        let accumulate = usize::try_from(scale.accumulate).unwrap_or(usize::MAX);
        let all = meta_batch.saturating_mul(accumulate);
        match scale.micro_batch {
            _ if scale.auto_batch => 1,
            Some(tasks) => tasks.min(all),
            None => meta_batch.min(all.div_ceil(devices * self.world.size())),
        }
    }

    /// The methods that learn rates take more than MAML, as which they are planned: what is refused
    /// would not fit, what is not may not.
    fn learning(&self) -> Learning {
        let Some(inner) = self.settings.inner else { return Learning::ProtoNet };
        let steps = inner.steps;
        match (self.settings.method, inner.order) {
            (Method::Reptile, _) => {
                let protocol = self.tasks.train.protocol();
                let all = protocol.ways * protocol.examples();
                let batch = inner.batch.map_or(all, |[batch, _]| batch);
                Learning::Reptile { steps, batch }
            }
            (Method::Anil, _) => Learning::Anil { steps },
            // The gradient of imaml is solved for at the end of the way, whose steps are not kept.
            (Method::Imaml, _) | (_, Order::First) => Learning::FirstOrder { steps },
            _ if inner.second_order_route == Some(SecondOrder::Chain) => {
                Learning::MamlChain { steps }
            }
            _ => Learning::Maml { steps },
        }
    }
}
