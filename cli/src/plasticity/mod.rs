//! Plastic hierarchies on generated inputs.

mod args;
mod report;
mod training;

pub(crate) use args::{PlasticityRunArgs, RUN_HELP};

use fewshot::plasticity::{Bcm, Covariance, Hebb, HierarchyConfig, Oja, Sanger, Subspace};

use crate::prelude::*;
use args::RuleName;
use report::RunResult;

pub(crate) fn run(args: &PlasticityRunArgs) -> Result {
    backend::prepare(args.device.threads)?;
    args.check()?;
    if let Some(warning) = args.warning() {
        print_status(warning);
    }
    // A tick is short: a thread of the pool begins with its share of an operation while it wakes the
    // others, any other thread would sleep until they are done.
    rayon::scope(|_| backend::dispatch(&args.device, args))
}

impl Work for &PlasticityRunArgs {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        let result = self.result::<B>(hardware.device())?;
        report::write(self, &result, hardware.info())?;
        report::plot(&result, &self.plot)
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
        let (tau, decay) = (self.tau(), self.decay.unwrap_or(0.0));
        match self.rule {
            RuleName::Hebb => self.train(hierarchy, Hebb::new().with_decay(decay)?, device),
            RuleName::Covariance => {
                self.train(hierarchy, Covariance::new(tau)?.with_decay(decay)?, device)
            }
            RuleName::Oja => self.train(hierarchy, Oja, device),
            RuleName::Subspace => self.train(hierarchy, Subspace, device),
            RuleName::Sanger => self.train(hierarchy, Sanger, device),
            RuleName::Bcm => self.train(hierarchy, Bcm::new(tau)?.with_decay(decay)?, device),
        }
    }
}
