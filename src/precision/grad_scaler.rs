use burn::config::Config;
use burn::module::AutodiffModule;
use burn::tensor::backend::AutodiffBackend;
use serde::{Deserialize, Serialize};

use super::{FiniteGrads, LossScale, NonFinite, ScaleError, ScaledGrads};

/// Configuration of a [`GradScaler`].
///
/// # Conventions
/// Names, defaults and meaning of `torch.amp.GradScaler`, but for `min_scale`, which it lacks.
#[derive(Config, Debug, PartialEq)]
pub struct GradScalerConfig {
    /// The scale at first.
    #[config(default = 65536.0)]
    pub init_scale: f32,
    /// Factor applied to the scale after enough finite steps; above 1.
    #[config(default = 2.0)]
    pub growth_factor: f64,
    /// Factor applied to the scale after gradients that are not finite; between 0 and 1.
    #[config(default = 0.5)]
    pub backoff_factor: f64,
    /// Finite steps in a row after which the scale grows.
    #[config(default = 2000)]
    pub growth_interval: u32,
    /// Lower bound of the scale; gradients that are not finite at this scale are an error.
    #[config(default = 1.0)]
    pub min_scale: f32,
}

/// Finds the largest loss scale at which gradients stay finite.
///
/// The scale falls by a factor with every step whose gradients are not finite, which is skipped,
/// and grows by a factor after a number of finite steps in a row, unless it would no longer be
/// finite.
#[derive(Clone, Debug)]
pub struct GradScaler {
    config: GradScalerConfig,
    state: GradScalerState,
}

/// The state of a [`GradScaler`], for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradScalerState {
    /// The scale.
    pub scale: f32,
    /// Finite steps in a row since the scale last changed or could not grow.
    pub growth_tracker: u32,
    /// Steps skipped since training began.
    pub skipped: u64,
}

impl GradScalerConfig {
    /// A scaler that begins with `init_scale`.
    ///
    /// # Errors
    /// Where a number makes no sense.
    pub fn init(self) -> Result<GradScaler, ScaleError> {
        let Self { growth_factor: growth, backoff_factor: backoff, growth_interval, .. } = self;
        let min = self.min_scale;
        let settings = [
            ("growth factor", "finite and above 1", growth, growth > 1.0 && growth.is_finite()),
            ("backoff factor", "between 0 and 1", backoff, backoff > 0.0 && backoff < 1.0),
            ("growth interval", "at least 1 step", growth_interval.into(), growth_interval > 0),
            // A smaller one has no finite inverse in f32.
            (
                "smallest loss scale",
                "finite and at least 1.2e-38",
                min.into(),
                min.is_normal() && min > 0.0,
            ),
        ];
        if let Some((name, expected, value, _)) = settings.into_iter().find(|(.., fits)| !fits) {
            return Err(ScaleError::Setting { name, expected: expected.to_owned(), value });
        }
        self.check_scale("initial loss scale", self.init_scale)?;
        let scale = self.init_scale;
        let state = GradScalerState { scale, growth_tracker: 0, skipped: 0 };
        Ok(GradScaler { config: self, state })
    }

    fn check_scale(&self, name: &'static str, value: f32) -> Result<(), ScaleError> {
        let expected = match value.is_finite() {
            true if value >= self.min_scale => return Ok(()),
            true => format!("at least {}", f64::from(self.min_scale)),
            false => "finite".to_owned(),
        };
        Err(ScaleError::Setting { name, expected, value: value.into() })
    }
}

impl GradScaler {
    /// Goes on from a state.
    ///
    /// # Errors
    /// Where its scale is below the smallest one or not finite, or the scale should have grown.
    pub fn with_state(mut self, state: GradScalerState) -> Result<Self, ScaleError> {
        self.config.check_scale("loss scale", state.scale)?;
        let (value, interval) = (state.growth_tracker, self.config.growth_interval);
        if value >= interval {
            let expected = format!("below the growth interval of {interval}");
            let (name, value) = ("count of finite steps", value.into());
            return Err(ScaleError::Setting { name, expected, value });
        }
        self.state = state;
        Ok(self)
    }

    /// The scaler's state.
    pub fn state(&self) -> GradScalerState {
        self.state
    }

    /// The scale of the next step's loss.
    pub fn loss_scale(&self) -> LossScale {
        LossScale(self.state.scale)
    }

    /// Steps skipped since training began.
    pub fn skipped(&self) -> u64 {
        self.state.skipped
    }

    /// The gradients divided by their scale, if all are finite; then sets the scale of the next
    /// step.
    ///
    /// To be called once a step of the optimizer, with all of its gradients. The device is read
    /// from once. See [`ScaledGrads::unscale`].
    ///
    /// # Errors
    /// The inner one where a gradient is not finite: the step is to be skipped, and the next one
    /// has a smaller scale. The outer one, which changes nothing, where
    /// - the gradients have another scale than the present one,
    /// - one of them is `f16` or `bf16`,
    /// - one of them is not finite, and the scale is the smallest one already.
    ///
    /// # Panics
    /// Where a gradient belongs to no parameter of `module`.
    pub fn unscale<B: AutodiffBackend, M: AutodiffModule<B>>(
        &mut self,
        gradients: ScaledGrads,
        module: &M,
    ) -> Result<Result<FiniteGrads, NonFinite>, ScaleError> {
        let (scale, present) = (gradients.scale().value(), self.state.scale);
        if scale != present {
            return Err(ScaleError::OtherScale { scale, present });
        }
        let unscaled = gradients.checked::<B, M>(module)?;
        match unscaled {
            Ok(_) => self.grow(),
            Err(_) => self.back_off()?,
        }
        Ok(unscaled)
    }

    fn grow(&mut self) {
        self.state.growth_tracker += 1;
        if self.state.growth_tracker < self.config.growth_interval {
            return;
        }
        self.state.growth_tracker = 0;
        let grown = times(self.state.scale, self.config.growth_factor);
        if grown.is_finite() {
            self.state.scale = grown;
        }
    }

    fn back_off(&mut self) -> Result<(), ScaleError> {
        let GradScalerState { scale, skipped, .. } = self.state;
        let min = self.config.min_scale;
        if scale <= min {
            return Err(ScaleError::Underflow { scale, min });
        }
        let scale = times(scale, self.config.backoff_factor).max(min);
        self.state = GradScalerState { scale, growth_tracker: 0, skipped: skipped + 1 };
        Ok(())
    }
}

/// Multiplied in `f64` and rounded to `f32`, as PyTorch does.
fn times(scale: f32, factor: f64) -> f32 {
    (f64::from(scale) * factor) as f32
}
