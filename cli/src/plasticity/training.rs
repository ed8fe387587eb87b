use std::time::{Duration, Instant};

use burn::tensor::Tensor;
use fewshot::plasticity::{
    PlasticityError, PlasticityRule, Rate, Running, SourceStream, Sources, TemporalHierarchy,
    row_norm,
};

use super::PlasticityRunArgs;
use super::report::{Moment, RunResult};
use crate::prelude::*;
use crate::progress::StepProgress;

/// Sources that inputs are mixed from, at most.
const SOURCES: usize = 20;

/// Time constant, in firings, of the inputs' running power, which rates are relative to.
const POWER_TAU: f64 = 100.0;

/// Number of times that layers are measured.
const MOMENTS: usize = 50;

/// Most values of inputs that are made at once, unless a slow layer's period takes more.
const VALUES: usize = 1 << 22;

/// Ticks of the sequence that layers are measured on.
const UNSEEN: usize = 1000;

struct Training<'a, B: Backend> {
    args: &'a PlasticityRunArgs,
    stream: SourceStream,
    /// A sequence that is never learned, to measure on.
    unseen: Tensor<B, 3>,
    device: B::Device,
    firings: Vec<usize>,
}

impl PlasticityRunArgs {
    pub(super) fn train<B: Backend, R: PlasticityRule<B>>(
        &self,
        hierarchy: TemporalHierarchy<B>,
        rule: R,
        device: &B::Device,
    ) -> Result<RunResult> {
        let running = hierarchy.start(rule, Rate::fixed(self.rate())?);
        let running = running.with_relative_rates(POWER_TAU)?;
        let sources = |seed| Sources::new(self.levels[0], SOURCES.min(self.levels[0] - 1), seed);
        let training = Training {
            args: self,
            stream: sources(self.seed)?.stream(self.batch),
            unseen: sources(self.seed.wrapping_add(1))?.stream(1).next(UNSEEN, device),
            device: device.clone(),
            firings: vec![0; self.periods.len()],
        };
        training.run(running)
    }
}

impl<B: Backend> Training<'_, B> {
    fn run<R: PlasticityRule<B>>(mut self, mut running: Running<B, R>) -> Result<RunResult> {
        let steps = self.args.steps;
        let progress = StepProgress::new(steps);
        let mut moments = Vec::new();
        let mut spent = Duration::ZERO;
        let mut done = 0;
        while done < steps {
            let ticks = self.block().min(steps - done);
            let xs = self.stream.next::<B>(ticks, &self.device);
            let start = Instant::now();
            running = self.through(running, xs).map_err(as_failure)?;
            B::sync(&self.device).expect("the device answers");
            spent += start.elapsed();
            progress.tell(done, done + ticks, spent);
            done += ticks;
            moments.push(self.moment(&running, done)?);
        }
        progress.finish();
        Ok(RunResult { moments, firings: self.firings, seconds: spent.as_secs_f64() })
    }

    /// Ticks at once; whole sequences end where all layers fire next.
    fn block(&self) -> usize {
        let fitting = (VALUES / (self.args.batch * self.args.levels[0])).max(1);
        let block = self.args.steps.div_ceil(MOMENTS).min(fitting);
        match self.args.periods.last() {
            Some(&slowest) if self.args.whole => {
                block.checked_next_multiple_of(slowest).unwrap_or(self.args.steps)
            }
            _ => block,
        }
    }

    fn through<R: PlasticityRule<B>>(
        &mut self,
        running: Running<B, R>,
        xs: Tensor<B, 3>,
    ) -> Result<Running<B, R>, PlasticityError> {
        if self.args.whole {
            let fired = running.hierarchy().forward(xs)?;
            for (count, firings) in self.firings.iter_mut().zip(fired) {
                *count += firings.outputs.dims()[1];
            }
            return Ok(running);
        }
        let running = running.learn(xs)?;
        let schedule = running.hierarchy().schedule();
        for (layer, count) in self.firings.iter_mut().enumerate() {
            *count = schedule.firings(layer, running.tick());
        }
        Ok(running)
    }

    fn moment<R: PlasticityRule<B>>(&self, running: &Running<B, R>, tick: usize) -> Result<Moment> {
        let hierarchy = running.hierarchy();
        let norms = hierarchy.layers().iter().map(|layer| row_norm(layer.weight.val()));
        let norms: Vec<f64> = norms.collect();
        let explained = hierarchy.explained_variance(self.unseen.clone()).map_err(as_failure)?;
        let mut figures = norms.iter().zip(&explained);
        if let Some(lost) = figures.position(|(a, b)| !(a.is_finite() && b.is_finite())) {
            let (layer, rate) = (lost + 1, self.args.rate());
            let hint =
                if self.args.rule.is_ojas() { "" } else { "; try a lower --rate or a --decay" };
            return Err(failed!(
                "layer {layer} is no longer finite by tick {tick} at a rate of {rate}{hint}"
            ));
        }
        Ok(Moment { tick, norms, explained })
    }
}

fn as_failure(error: PlasticityError) -> CliError {
    CliError::Failed(error.to_string())
}
