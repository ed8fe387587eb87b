//! Plastic hierarchies on generated inputs.

mod args;
mod plot;
mod progress;
mod report;
mod training;

pub(crate) use args::{PlasticityRunArgs, RUN_HELP};

use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot::plasticity::{
    Bcm, Covariance, Hebb, HierarchyConfig, Oja, PlasticityError, PlasticityRule, Rate, Sanger,
    Sources, Subspace, TemporalHierarchy,
};

use super::backend::{self, Job, Place};
use super::error::CliError;
use super::output::print_status;
use args::RuleName;
use training::Training;

/// Sources of the inputs, unless these are shorter.
const SOURCES: usize = 20;

/// Firings within which the power is followed that rates are relative to.
const POWER_TAU: f64 = 100.0;

pub(crate) fn run(args: PlasticityRunArgs) -> Result<(), CliError> {
    backend::prepare(&args.device)?;
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
    type Output = ();

    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        type Inner<B> = <B as AutodiffBackend>::InnerBackend;
        let hierarchy = self.hierarchy::<Inner<B>>(&place.device).map_err(usage)?;
        let (tau, decay) = (self.tau(), self.decay());
        let hebb = || Hebb::new().with_decay(decay);
        let covariance = || Covariance::new(tau)?.with_decay(decay);
        let bcm = || Bcm::new(tau)?.with_decay(decay);
        let result = match self.rule {
            RuleName::Hebb => self.with(hierarchy, hebb().map_err(usage)?, &place),
            RuleName::Covariance => self.with(hierarchy, covariance().map_err(usage)?, &place),
            RuleName::Oja => self.with(hierarchy, Oja, &place),
            RuleName::Subspace => self.with(hierarchy, Subspace, &place),
            RuleName::Sanger => self.with(hierarchy, Sanger, &place),
            RuleName::Bcm => self.with(hierarchy, bcm().map_err(usage)?, &place),
        }?;
        report::write(&self, &result, place.backend, &place.label)?;
        plot::write(&result, &self.plot)
    }
}

impl PlasticityRunArgs {
    fn hierarchy<B: Backend>(
        &self,
        device: &B::Device,
    ) -> Result<TemporalHierarchy<B>, PlasticityError> {
        B::seed(device, self.seed);
        HierarchyConfig::new(self.levels.clone(), self.periods.clone())
            .with_activation(self.activation().into())
            .with_aggregate(self.aggregate.into())
            .with_top_down(self.top_down)
            .init(device)
    }

    fn with<B: AutodiffBackend, R: PlasticityRule<B::InnerBackend>>(
        &self,
        hierarchy: TemporalHierarchy<B::InnerBackend>,
        rule: R,
        place: &Place<B>,
    ) -> Result<report::RunResult, CliError> {
        let rate = Rate::fixed(self.rate()).map_err(usage)?;
        let running = hierarchy.start(rule, rate).with_relative_rates(POWER_TAU).map_err(usage)?;
        let sources = |seed| Sources::new(self.levels[0], SOURCES.min(self.levels[0] - 1), seed);
        let learned = sources(self.seed).map_err(usage)?;
        let unseen = sources(self.seed.wrapping_add(1)).map_err(usage)?;
        Training::new(self, learned, unseen, place.device.clone()).run(running)
    }
}

fn usage(error: PlasticityError) -> CliError {
    CliError::Usage(error.to_string())
}
