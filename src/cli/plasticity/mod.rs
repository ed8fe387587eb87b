//! Plastic hierarchies on generated inputs.

mod course;
mod plot;
mod report;

use std::path::PathBuf;

use burn::tensor::backend::{AutodiffBackend, Backend};
use clap::{Args, ValueEnum};
use fewshot::plasticity::{
    Aggregate, Bcm, Covariance, Hebb, HierarchyConfig, Oja, PlasticityError, PlasticityRule, Rate,
    Sanger, Sources, Subspace, TemporalHierarchy,
};

use super::args::DeviceArgs;
use super::backend::{self, Job, Place};
use super::error::CliError;
use super::output::tell;
use course::Course;

#[derive(Clone, Debug, Args)]
pub(crate) struct PlasticityRunArgs {
    /// Length of the input, then numbers of neurons from the fastest layer to the slowest
    #[arg(long, value_delimiter = ',', default_value = "100,200,400,800", value_name = "SIZES")]
    levels: Vec<usize>,
    /// Periods of the layers in ticks, each a multiple of the one before
    #[arg(long, value_delimiter = ',', default_value = "1,2,4", value_name = "TICKS")]
    periods: Vec<usize>,
    /// Ticks
    #[arg(long, default_value_t = 10_000, value_parser = super::args::count(1..))]
    steps: usize,
    /// How weights change
    #[arg(long, value_enum, default_value_t = RuleName::Oja)]
    rule: RuleName,
    /// Share of the rate at which a layer may no longer settle, which is one over the squared length
    /// of what it sees; 0 keeps all weights as they are
    #[arg(long, default_value_t = 0.1)]
    rate: f64,
    /// What a layer sees of the outputs below it since it fired last
    #[arg(long, value_enum, default_value_t = AggregateName::Mean)]
    aggregate: AggregateName,
    /// Strength of the gain from parents on their children a tick later
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true, value_name = "GAIN")]
    top_down: f64,
    /// Sequences side by side
    #[arg(long, default_value_t = 1, value_parser = super::args::count(1..=65_536))]
    batch: usize,
    /// Take whole sequences at once, which needs --rate 0
    #[arg(long)]
    whole: bool,
    /// Seed of weights and inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The plot of row norms and explained variance
    #[arg(long, default_value = "plasticity.svg", value_name = "FILE")]
    plot: PathBuf,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) const RUN_HELP: &str = "\
Inputs are slow and fast sources mixed along known directions, with powers that halve from one to \
the next; their squared length is 1 on average. The explained variance of a layer is the share of \
the power of what it sees that its outputs explain through its own weights.

With --json, standard output is one JSON object: levels, periods, rule, rate, steps, batch, seconds \
(generation of inputs and measuring apart), steps_per_s, layers (each with period, firings, row_norm, \
explained_variance), backend, device, threads, plot.";

/// How weights change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RuleName {
    /// Outputs times inputs; grows without end
    Hebb,
    /// Hebb on deviations from running means
    Covariance,
    /// All neurons find the first principal component
    Oja,
    /// Neurons find the space of the first principal components
    Subspace,
    /// Neurons find the principal components in order
    Sanger,
    /// Bienenstock, Cooper and Munro: neurons become selective
    Bcm,
}

/// What a layer sees of the outputs below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AggregateName {
    /// The last one
    Last,
    /// Their mean
    Mean,
    /// All of them
    Concat,
}

/// Sources of the inputs, unless these are shorter.
const SOURCES: usize = 20;

/// Ticks within which running means and thresholds follow.
const TAU: f64 = 100.0;

pub(crate) fn run(args: PlasticityRunArgs) -> Result<(), CliError> {
    backend::prepare(&args.device)?;
    let rate = args.rate;
    if !(rate.is_finite() && rate >= 0.0) {
        return Err(CliError::Usage(format!("--rate must be a number from 0 on, not {rate}")));
    }
    if args.whole && rate != 0.0 {
        return Err(CliError::Usage(
            "--whole is for layers that do not adapt: --rate 0".to_owned(),
        ));
    }
    if rate > 1.0 {
        tell(format_args!("a rate of {rate} is beyond 1, up to which rules like Oja's settle"));
    }
    let device = args.device.clone();
    backend::dispatch(&device, args)
}

impl Job for PlasticityRunArgs {
    type Output = ();

    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        type Inner<B> = <B as AutodiffBackend>::InnerBackend;
        let hierarchy = self.hierarchy::<Inner<B>>(&place.device).map_err(usage)?;
        let tau = |error: PlasticityError| CliError::Failed(error.to_string());
        let told = match self.rule {
            RuleName::Hebb => self.with(hierarchy, Hebb::new(), &place),
            RuleName::Covariance => {
                self.with(hierarchy, Covariance::new(TAU).map_err(tau)?, &place)
            }
            RuleName::Oja => self.with(hierarchy, Oja, &place),
            RuleName::Subspace => self.with(hierarchy, Subspace, &place),
            RuleName::Sanger => self.with(hierarchy, Sanger, &place),
            RuleName::Bcm => self.with(hierarchy, Bcm::new(TAU).map_err(tau)?, &place),
        }?;
        plot::write(&told, &self.plot)?;
        report::tell(&self, &told, place.backend, &place.label)
    }
}

impl PlasticityRunArgs {
    fn hierarchy<B: Backend>(
        &self,
        device: &B::Device,
    ) -> Result<TemporalHierarchy<B>, PlasticityError> {
        B::seed(device, self.seed);
        HierarchyConfig::new(self.levels.clone(), self.periods.clone())
            .with_aggregate(match self.aggregate {
                AggregateName::Last => Aggregate::Last,
                AggregateName::Mean => Aggregate::Mean,
                AggregateName::Concat => Aggregate::Concat,
            })
            .with_top_down(self.top_down)
            .init(device)
    }

    fn with<B: AutodiffBackend, R: PlasticityRule<B::InnerBackend>>(
        &self,
        hierarchy: TemporalHierarchy<B::InnerBackend>,
        rule: R,
        place: &Place<B>,
    ) -> Result<report::Told, CliError> {
        let inputs = self.levels[0];
        let sources = SOURCES.min(inputs.saturating_sub(1));
        let stream = Sources::new(inputs, sources, self.seed).map_err(usage)?.stream(self.batch);
        let running =
            hierarchy.start(rule, Rate::fixed(self.rate).map_err(usage)?).with_relative_rates(TAU);
        let course = Course { args: self, stream, device: place.device.clone() };
        course.run(running.map_err(usage)?).map_err(|error| CliError::Failed(error.to_string()))
    }
}

fn usage(error: PlasticityError) -> CliError {
    CliError::Usage(error.to_string())
}
