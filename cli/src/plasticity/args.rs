use clap::{Args, ValueEnum};
use fewshot::plasticity::{Activation, Aggregate};

use crate::args::{DeviceArgs, count, one_of};
use crate::prelude::*;

#[derive(Clone, Debug, Args)]
pub(crate) struct PlasticityRunArgs {
    /// Length of the input, then numbers of neurons from the fastest layer to the slowest
    #[arg(long, value_delimiter = ',', default_value = "100,200,400,800", value_name = "SIZES")]
    pub(super) levels: Vec<usize>,
    /// Periods of the layers in ticks, each a multiple of the one before
    #[arg(long, value_delimiter = ',', default_value = "1,2,4", value_name = "TICKS")]
    pub(super) periods: Vec<usize>,
    /// Ticks
    #[arg(long, default_value_t = 10_000, value_parser = count(1..))]
    pub(super) steps: usize,
    /// Rule by which weights change
    #[arg(long, value_enum, default_value_t = RuleName::Oja)]
    pub(super) rule: RuleName,
    /// Share of the rate at which a layer may no longer settle, which is one over the squared length
    /// of what it sees; 0 keeps all weights as they are [default: 0.1 of Oja's rules, which are oja,
    /// subspace and sanger, 0.005 of bcm, and 0.001 of others]
    #[arg(long)]
    pub(super) rate: Option<f64>,
    /// Share of the weights that hebb, covariance and bcm forget at every firing at a rate of 1
    /// [default: 0]
    #[arg(long)]
    pub(super) decay: Option<f64>,
    /// Firings within which the thresholds of bcm and the means of covariance follow [default: 20 and
    /// 100]
    #[arg(long, value_name = "FIRINGS")]
    pub(super) tau: Option<f64>,
    /// Function of the weighted sums of neurons [default: relu of bcm, as its outputs are rates of
    /// spikes and linear ones learn nothing from inputs that are symmetric about zero, linear of others]
    #[arg(long, value_parser = one_of([
        ("linear", "The sum itself", Activation::Linear),
        ("tanh", "Its hyperbolic tangent", Activation::Tanh),
        ("relu", "Its positive part", Activation::Relu),
    ]))]
    pub(super) activation: Option<Activation>,
    /// Aggregate of the outputs below a layer since it fired last, which the layer sees
    #[arg(long, default_value = "mean", value_parser = one_of([
        ("last", "The last one", Aggregate::Last),
        ("mean", "Their mean", Aggregate::Mean),
        ("concat", "All of them", Aggregate::Concat),
    ]))]
    pub(super) aggregate: Aggregate,
    /// Strength of the gain from parents on their children a tick later
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true, value_name = "GAIN")]
    pub(super) top_down: f64,
    /// Sequences side by side
    #[arg(long, default_value_t = 1, value_parser = count(1..=65_536))]
    pub(super) batch: usize,
    /// Take whole sequences at once, block by block, each from a first tick on; needs --rate 0
    #[arg(long)]
    pub(super) whole: bool,
    /// Seed of weights and inputs
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// The plot of row norms and explained variance
    #[arg(long, default_value = "plasticity.svg", value_name = "FILE")]
    pub(super) plot: PathBuf,
    #[command(flatten)]
    pub(super) device: DeviceArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(crate) const RUN_HELP: &str = "\
Inputs are slow and fast sources mixed along known directions, with powers that halve from one to the next; \
their squared length is 1 on average. The explained variance of a layer is the share of the power of its \
input that its outputs explain through its own weights, over 1000 ticks of another sequence that is never \
learned. A run whose weights are no longer finite ends with an error.

With --json, standard output is one JSON object: levels, periods, activation, aggregate, top_down, rule, rate, \
decay, tau, whole, seed, steps, batch, seconds (without generation of inputs and measuring), steps_per_s, \
layers (each with period, firings, row_norm, explained_variance), backend, device, threads, plot.";

/// Rules by which weights change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RuleName {
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

impl RuleName {
    /// Tells the rules that settle at principal components, up to a bound on the rate.
    pub(super) fn is_ojas(self) -> bool {
        matches!(self, Self::Oja | Self::Subspace | Self::Sanger)
    }
}

impl PlasticityRunArgs {
    /// The rate, by default one of the rule: BCM's thresholds must be faster than its weights,
    /// and what grows without end should take its time.
    pub(super) fn rate(&self) -> f64 {
        self.rate.unwrap_or(match self.rule {
            RuleName::Oja | RuleName::Subspace | RuleName::Sanger => 0.1,
            RuleName::Bcm => 5e-3,
            RuleName::Hebb | RuleName::Covariance => 1e-3,
        })
    }

    pub(super) fn activation(&self) -> Activation {
        let bcm = self.rule == RuleName::Bcm;
        self.activation.unwrap_or(if bcm { Activation::Relu } else { Activation::Linear })
    }

    pub(super) fn tau(&self) -> f64 {
        self.tau.unwrap_or(if self.rule == RuleName::Bcm { 20.0 } else { 100.0 })
    }

    pub(super) fn check(&self) -> Result {
        let rule = lower(self.rule);
        if self.whole && self.rate() != 0.0 {
            return Err(usage!("--whole is for layers that do not adapt: --rate 0"));
        }
        if self.decay.is_some() && self.rule.is_ojas() {
            return Err(usage!("--decay is for hebb, covariance and bcm: {rule} forgets itself"));
        }
        if self.tau.is_some() && !matches!(self.rule, RuleName::Covariance | RuleName::Bcm) {
            return Err(usage!("--tau is for covariance and bcm: {rule} follows nothing"));
        }
        if let [inputs @ 0..2, ..] = self.levels[..] {
            return Err(usage!("--levels: the input needs at least 2 values, not {inputs}"));
        }
        let folder = self.plot.parent().filter(|folder| !folder.as_os_str().is_empty());
        match folder.is_none_or(Path::is_dir) {
            true => Ok(()),
            false => Err(usage!("--plot {}: there is no such folder", self.plot.display())),
        }
    }

    /// Warning of a rule at its rate, beside the warnings of the hierarchy itself.
    pub(super) fn warning(&self) -> Option<String> {
        let (rate, tau) = (self.rate(), self.tau());
        let hasty = self.rule == RuleName::Bcm && rate * tau >= 1.0;
        hasty.then(|| {
            format!(
                "at a rate of {rate} and a tau of {tau}, weights move as fast as thresholds follow: \
                 1 / tau should be well above the rate"
            )
        })
    }
}
