//! Plastic hierarchies on generated inputs.

mod args;
mod plot;
mod report;
mod training;

pub(crate) use args::{PlasticityRunArgs, RUN_HELP};

use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot::plasticity::{
    Bcm, Covariance, Hebb, HierarchyConfig, Oja, PlasticityRule, Rate, Sanger, Sources, Subspace,
    TemporalHierarchy,
};

use super::backend::{self, Job, Place};
use super::error::Result;
use super::output::print_status;
use args::RuleName;
use report::RunResult;
use training::Training;

/// Sources of the inputs, unless these are shorter.
const SOURCES: usize = 20;

/// Firings within which the power is followed that rates are relative to.
const POWER_TAU: f64 = 100.0;

pub(crate) fn run(args: PlasticityRunArgs) -> Result {
    backend::prepare(args.device.threads)?;
    args.check()?;
    if let Some(warning) = args.warning() {
        print_status(warning);
    }
    let device = args.device.clone();
    // A tick is short: a thread of the pool begins with its share of an operation while it wakes the
    // others, any other thread would sleep until they are done.
    rayon::scope(|_| backend::dispatch(&device, args))
}

impl Job for PlasticityRunArgs {
    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result {
        let result = self.result::<B::InnerBackend>(&place.device)?;
        report::write(&self, &result, &place)?;
        plot::write(&result, &self.plot)
    }
}

impl PlasticityRunArgs {
    fn result<B: Backend>(&self, device: &B::Device) -> Result<RunResult> {
        B::seed(device, self.seed);
        let hierarchy = HierarchyConfig::new(self.levels.clone(), self.periods.clone())
            .with_activation(self.activation())
            .with_aggregate(self.aggregate)
            .with_top_down(self.top_down)
            .init::<B>(device)?;
        let (tau, decay) = (self.tau(), self.decay());
        match self.rule {
            RuleName::Hebb => self.with(hierarchy, Hebb::new().with_decay(decay)?, device),
            RuleName::Covariance => {
                self.with(hierarchy, Covariance::new(tau)?.with_decay(decay)?, device)
            }
            RuleName::Oja => self.with(hierarchy, Oja, device),
            RuleName::Subspace => self.with(hierarchy, Subspace, device),
            RuleName::Sanger => self.with(hierarchy, Sanger, device),
            RuleName::Bcm => self.with(hierarchy, Bcm::new(tau)?.with_decay(decay)?, device),
        }
    }

    fn with<B: Backend, R: PlasticityRule<B>>(
        &self,
        hierarchy: TemporalHierarchy<B>,
        rule: R,
        device: &B::Device,
    ) -> Result<RunResult> {
        let running = hierarchy.start(rule, Rate::fixed(self.rate())?);
        let running = running.with_relative_rates(POWER_TAU)?;
        let sources = |seed| Sources::new(self.levels[0], SOURCES.min(self.levels[0] - 1), seed);
        let (learned, unseen) = (sources(self.seed)?, sources(self.seed.wrapping_add(1))?);
        Training::new(self, learned, unseen, device.clone()).run(running)
    }
}
