use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::window::Window;
use super::{Firings, TemporalHierarchy, finite};
use crate::plasticity::error::at_least;
use crate::plasticity::{PlasticLinear, PlasticityError, PlasticityRule, Rate, largest_rate};

/// A [`TemporalHierarchy`] on its way through sequences, learning as it goes.
///
/// Every step consumes it and gives the next one. Layers learn when they fire, from what they see
/// and what they give.
#[derive(Clone, Debug)]
pub struct Running<B: Backend, R: PlasticityRule<B>> {
    hierarchy: TemporalHierarchy<B>,
    levels: Vec<Level<B, R>>,
    rule: R,
    rate: Rate<B>,
    /// Ticks within which the power of inputs is followed, where rates are relative to it.
    relative: Option<f64>,
    tick: usize,
}

/// What one layer remembers.
#[derive(Clone, Debug)]
struct Level<B: Backend, R: PlasticityRule<B>> {
    /// Of the rule.
    state: R::State,
    window: Window<B>,
    /// The last output, held until the next.
    output: Option<Tensor<B, 2>>,
    /// What the parent makes of the next outputs.
    gain: Option<Tensor<B, 2>>,
    /// Running mean of the squared length of what it sees, `[1]`.
    power: Option<Tensor<B, 1>>,
}

impl<B: Backend, R: PlasticityRule<B>> Running<B, R> {
    pub(super) fn new(hierarchy: TemporalHierarchy<B>, rule: R, rate: Rate<B>) -> Self {
        let level = |layer: &PlasticLinear<B>| Level {
            state: rule.init(layer.neurons(), layer.inputs(), &layer.weight.val().device()),
            window: Window::Empty,
            output: None,
            gain: None,
            power: None,
        };
        let levels = hierarchy.layers.iter().map(level).collect();
        Self { hierarchy, levels, rule, rate, relative: None, tick: 0 }
    }

    /// With the rate of each layer as a share of [`largest_rate`] for what the layer sees: of the
    /// squared length at hand or its running mean over `tau` firings, whichever is larger.
    ///
    /// Higher layers see the sum of many neurons, so that one rate for all can suit only one.
    ///
    /// # Errors
    /// Unless `tau` is a number from one on.
    pub fn with_relative_rates(self, tau: f64) -> Result<Self, PlasticityError> {
        let tau = at_least("tau", 1.0, "a number from 1 on", tau)?;
        Ok(Self { relative: Some(tau), ..self })
    }

    /// Ticks done.
    pub fn tick(&self) -> usize {
        self.tick
    }

    /// The layers as they are now.
    pub fn hierarchy(&self) -> &TemporalHierarchy<B> {
        &self.hierarchy
    }

    /// The output that a layer holds, `[b, neurons]`; none before the first tick.
    pub fn held(&self, layer: usize) -> Option<Tensor<B, 2>> {
        self.levels[layer].output.clone()
    }

    /// One tick with the input `x`, `[b, inputs]`. The layers that fired gave new outputs, the others
    /// hold theirs.
    ///
    /// # Errors
    /// When the input has another length, is not finite, or is of another number of sequences.
    pub fn step(self, x: Tensor<B, 2>) -> Result<Self, PlasticityError> {
        let [batch, length] = x.dims();
        self.check(batch, length)?;
        finite(x.clone(), self.tick)?;
        if self.tick == 0 {
            self.warn(x.clone());
        }
        Ok(self.advance(x, &mut |_, _| {}))
    }

    /// All ticks of `xs`, `[b, T, inputs]`, with what the layers gave when they fired; a layer that
    /// did not has no firings here.
    ///
    /// # Errors
    /// As [`step`](Self::step), and when there is no tick.
    pub fn run(mut self, xs: Tensor<B, 3>) -> Result<(Self, Vec<Firings<B>>), PlasticityError> {
        let mut fired: Vec<Vec<Tensor<B, 3>>> = vec![Vec::new(); self.levels.len()];
        self = self.through(xs, &mut |layer, output| {
            fired[layer].push(output.clone().unsqueeze_dim(1));
        })?;
        let firings = fired.into_iter().enumerate().filter(|(_, outputs)| !outputs.is_empty());
        let firings = firings.map(|(layer, outputs)| Firings {
            period: self.hierarchy.schedule().period(layer),
            outputs: Tensor::cat(outputs, 1),
        });
        let firings = firings.collect();
        Ok((self, firings))
    }

    /// As [`run`](Self::run) for what is learned alone.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn learn(self, xs: Tensor<B, 3>) -> Result<Self, PlasticityError> {
        self.through(xs, &mut |_, _| {})
    }

    fn through(
        mut self,
        xs: Tensor<B, 3>,
        told: &mut impl FnMut(usize, &Tensor<B, 2>),
    ) -> Result<Self, PlasticityError> {
        let [batch, ticks, length] = xs.dims();
        self.check(batch, length)?;
        if ticks == 0 {
            return Err(PlasticityError::NoSteps);
        }
        finite(xs.clone(), self.tick)?;
        if self.tick == 0 {
            self.warn(xs.clone().reshape([batch * ticks, length]));
        }
        for tick in 0..ticks {
            let x = xs.clone().narrow(1, tick, 1).reshape([batch, length]);
            self = self.advance(x, told);
        }
        Ok(self)
    }

    fn check(&self, batch: usize, found: usize) -> Result<(), PlasticityError> {
        let wanted = self.hierarchy.inputs();
        if found != wanted {
            return Err(PlasticityError::Inputs { wanted, found });
        }
        match self.levels[0].output.as_ref().map(|output| output.dims()[0]) {
            Some(wanted) if wanted != batch => {
                Err(PlasticityError::Sequences { wanted, found: batch })
            }
            _ => Ok(()),
        }
    }

    /// Once, at the first tick: reading the device at every tick would cost more than the tick.
    fn warn(&self, x: Tensor<B, 2>) {
        if !self.rule.settles() || self.rate.is_zero() {
            return;
        }
        let largest = if self.relative.is_some() { 1.0 } else { largest_rate(x) };
        let rate = self.rate.value();
        if rate > largest {
            log::warn!(
                "a rate of {rate} is beyond {largest:.3e}, the bound that the power of the inputs \
                 sets; the weights may not settle"
            );
        }
    }

    /// A tick whose input is known to fit.
    fn advance(mut self, x: Tensor<B, 2>, told: &mut impl FnMut(usize, &Tensor<B, 2>)) -> Self {
        let aggregate = self.hierarchy.aggregate;
        let mut below = x;
        let layers = std::mem::take(&mut self.hierarchy.layers);
        let mut kept = layers.into_iter();
        let mut fired = Vec::with_capacity(self.levels.len());
        for (index, level) in self.levels.iter_mut().enumerate() {
            let window = std::mem::replace(&mut level.window, Window::Empty);
            level.window = window.push(aggregate, below.clone());
            if !self.hierarchy.schedule.fires(index, self.tick) {
                break;
            }
            let window = std::mem::replace(&mut level.window, Window::Empty);
            let (Some(seen), Some(layer)) =
                (window.seen(self.hierarchy.schedule.ratio(index)), kept.next())
            else {
                break;
            };
            let (layer, output) = level.fire(layer, seen, &self.rule, &self.rate, self.relative);
            told(index, &output);
            level.output = Some(output.clone());
            fired.push(layer);
            below = output;
        }
        let count = fired.len();
        fired.extend(kept);
        self.hierarchy.layers = fired;
        self.feed_back(count);
        self.tick += 1;
        self
    }

    /// What parents that fired tell their children for the ticks to come.
    fn feed_back(&mut self, fired: usize) {
        let strength = self.hierarchy.top_down;
        if strength == 0.0 {
            return;
        }
        for parent in 1..fired {
            let Some(output) = self.levels[parent].output.clone() else { continue };
            let weight = self.hierarchy.layers[parent].weight.val();
            let gain = output.matmul(weight).tanh() * strength + 1.0;
            self.levels[parent - 1].gain = Some(gain);
        }
    }
}

impl<B: Backend, R: PlasticityRule<B>> Level<B, R> {
    fn fire(
        &mut self,
        layer: PlasticLinear<B>,
        seen: Tensor<B, 2>,
        rule: &R,
        rate: &Rate<B>,
        relative: Option<f64>,
    ) -> (PlasticLinear<B>, Tensor<B, 2>) {
        let output = layer.forward(seen.clone());
        let output = match &self.gain {
            Some(gain) => output * gain.clone(),
            None => output,
        };
        if rate.is_zero() {
            return (layer, output);
        }
        let rate = match relative {
            Some(tau) => self.relative_rate(&seen, rate, tau),
            None => rate.clone(),
        };
        let (layer, state) = layer.learn(seen, output.clone(), rule, self.state.clone(), &rate);
        self.state = state;
        (layer, output)
    }

    fn relative_rate(&mut self, seen: &Tensor<B, 2>, rate: &Rate<B>, tau: f64) -> Rate<B> {
        let now = (seen.clone() * seen.clone()).sum() / seen.dims()[0] as f64;
        let mean = match self.power.take() {
            Some(mean) => mean.clone() + (now.clone() - mean) / tau,
            None => now.clone(),
        };
        self.power = Some(mean.clone());
        // An input of zeros teaches nothing, whatever the rate.
        let power = mean.max_pair(now) + f64::from(f32::MIN_POSITIVE);
        Rate::Learned(rate.times(power.recip()))
    }
}
