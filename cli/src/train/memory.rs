//! Number of tasks that fit in memory, before anything is computed.

use fewshot::adapt::{Order, SecondOrder};
use fewshot::catalog::{Backbone, BackboneConfig, Estimate, Method as Learning};
use fewshot::hardware::{Bytes, HardwareError};
use fewshot::kernels::{Route, route};
use fewshot::models::EncoderConfig;

use super::images::ImageRun;
use crate::method::Method;
use crate::prelude::*;
use crate::world::smallest;

impl ImageRun<'_> {
    /// Cuts a step to as many tasks at once as fit in every process.
    pub(super) fn fit_memory<B: Backend>(&mut self, hardware: &HardwareManager<B>) -> Result {
        let at_once = self.at_once(hardware.devices().count());
        // Even if all fit here: the other processes wait for this one's number.
        let fit = smallest(&self.world, self.tasks_that_fit(hardware, at_once)?)?;
        if fit < at_once {
            print_status(format_args!("{fit} of {at_once} tasks fit in memory at once"));
            self.micro_batch = Some(fit);
        }
        Ok(())
    }

    /// Number of tasks, of `at_once`, that fit the budget, with no tensor larger than one may be, by the formulas of the
    /// network. On an accelerator without a given number of tasks, fewer than all may fit; elsewhere that is an error.
    /// Without a budget and a largest tensor, all fit.
    fn tasks_that_fit<B: Backend>(
        &self,
        hardware: &HardwareManager<B>,
        at_once: usize,
    ) -> Result<usize> {
        let Self { args, settings, tasks, .. } = self;
        let largest_buffer = hardware.info().capabilities.largest_buffer;
        let budget = hardware.budget().ok();
        if budget.is_none() && largest_buffer.is_none() {
            return Ok(at_once);
        }
        let protocol = tasks.train.largest();
        let config = match settings.network()? {
            EncoderConfig::Conv4(config) => config,
            other => return self.without_formula(&other.name(), at_once),
        };
        let (name, image) = (settings.method.to_string(), config.image);
        let network = Backbone::new(name, image, BackboneConfig::Conv4(config));
        let optimizer = settings.outer.kind();
        let (route, device) = (route::<Autodiff<B>>(), hardware.device());
        let mut estimate =
            Estimate::new::<B>(&network, self.learning(), protocol, optimizer, route, device)
                .with_checkpointing(args.scale.grad_checkpoint);
        estimate.planner.largest_buffer = largest_buffer;
        estimate.planner.weight_averages = u64::from(args.outer.ema.is_some());
        if let Some(lanes) = settings.inner.and_then(|inner| inner.lanes) {
            estimate = estimate.with_lanes(lanes);
        }
        let is_given = args.scale.auto_batch || self.micro_batch.is_some();
        let may_cut = matches!(route, Route::Device(_)) && !is_given;
        match estimate.check(at_once, budget.unwrap_or(Bytes(u64::MAX))) {
            Ok(()) => Ok(at_once),
            Err(HardwareError::TooManyTasks { fit: Some(fit @ 1..), .. })
            | Err(HardwareError::LargestBuffer { fit: Some(fit @ 1..), .. })
                if may_cut =>
            {
                Ok(fit)
            }
            Err(refused) => Err(refused.into()),
        }
    }

    /// All tasks, for a network whose memory no formula tells.
    fn without_formula(&self, name: &str, at_once: usize) -> Result<usize> {
        if self.args.memory_budget.is_some() && !self.args.scale.auto_batch {
            return Err(usage!(
                "the memory that {name} takes is not known: with --memory-budget give --auto-batch, which measures it"
            ));
        }
        if !self.args.scale.auto_batch {
            print_status(format_args!(
                "the memory that {name} takes is not known: --auto-batch measures it, --micro-batch 1 takes the least"
            ));
        }
        Ok(at_once)
    }

    /// Tasks that are differentiated at once, at least.
    fn at_once(&self, devices: usize) -> usize {
        let scale = &self.args.scale;
        let meta_batch = usize::try_from(self.tasks.meta_batch).unwrap_or(usize::MAX);
        let accumulate = usize::try_from(scale.accumulate).unwrap_or(usize::MAX);
        let all = meta_batch.saturating_mul(accumulate);
        match self.micro_batch {
            _ if scale.auto_batch => 1,
            Some(tasks) => tasks.min(all),
            None => meta_batch.min(all.div_ceil(devices * self.world.size())),
        }
    }

    /// Method that the memory is planned for. Methods that learn rates are planned as MAML, and take somewhat more.
    fn learning(&self) -> Learning {
        let Some(inner) = self.settings.inner else { return Learning::ProtoNet };
        let steps = inner.steps;
        match (self.settings.method, inner.order) {
            (Method::Reptile, _) => {
                let protocol = self.tasks.train.largest();
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
