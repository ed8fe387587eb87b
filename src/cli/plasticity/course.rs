use std::io::IsTerminal;
use std::time::{Duration, Instant};

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot::plasticity::{PlasticityError, PlasticityRule, Running, SourceStream, row_norm};
use indicatif::{ProgressBar, ProgressStyle};

use super::PlasticityRunArgs;
use super::report::{Moment, Told};
use crate::cli::output::tell;

/// How often it is looked at the layers.
const MOMENTS: usize = 50;

/// Most values of inputs that are made at once.
const VALUES: usize = 1 << 22;

/// The way through a run's inputs.
pub(super) struct Course<'a, B: Backend> {
    pub(super) args: &'a PlasticityRunArgs,
    pub(super) stream: SourceStream,
    pub(super) device: B::Device,
}

impl<B: Backend> Course<'_, B> {
    pub(super) fn run<R: PlasticityRule<B>>(
        mut self,
        mut running: Running<B, R>,
    ) -> Result<Told, PlasticityError> {
        let steps = self.args.steps;
        let fitting = (VALUES / (self.args.batch * self.args.levels[0])).max(1);
        let block = steps.div_ceil(MOMENTS).min(fitting);
        let bar = progress(steps);
        let mut moments = Vec::new();
        let mut spent = Duration::ZERO;
        let mut done = 0;
        while done < steps {
            let ticks = block.min(steps - done);
            let xs = self.stream.next::<B>(ticks, &self.device);
            let start = Instant::now();
            running = self.through(running, xs.clone())?;
            B::sync(&self.device).expect("the device answers");
            spent += start.elapsed();
            done += ticks;
            moments.push(moment(&running, xs, done)?);
            let pace = done as f64 / spent.as_secs_f64();
            bar.set_message(format!("{pace:.0} steps/s"));
            bar.set_position(done as u64);
        }
        bar.finish_and_clear();
        let schedule = running.hierarchy().schedule();
        let layers = 0..running.hierarchy().layers().len();
        let firings = layers.map(|layer| schedule.firings(layer, steps)).collect();
        Ok(Told { moments, firings, seconds: spent.as_secs_f64() })
    }

    fn through<R: PlasticityRule<B>>(
        &self,
        running: Running<B, R>,
        xs: Tensor<B, 3>,
    ) -> Result<Running<B, R>, PlasticityError> {
        if !self.args.whole {
            return running.learn(xs);
        }
        running.hierarchy().forward(xs)?;
        Ok(running)
    }
}

fn moment<B: Backend, R: PlasticityRule<B>>(
    running: &Running<B, R>,
    xs: Tensor<B, 3>,
    tick: usize,
) -> Result<Moment, PlasticityError> {
    let hierarchy = running.hierarchy();
    let norms = hierarchy.layers().iter().map(|layer| row_norm(layer.weight.val())).collect();
    Ok(Moment { tick, norms, explained: hierarchy.explained_variance(xs)? })
}

fn progress(steps: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        tell(format_args!("{steps} steps"));
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(steps as u64);
    let template = "{bar:30} {pos}/{len}  {msg}";
    bar.with_style(ProgressStyle::with_template(template).expect("the template is well formed"))
}
