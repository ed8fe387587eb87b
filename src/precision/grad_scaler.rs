use burn::module::AutodiffModule;
use burn::tensor::backend::AutodiffBackend;
use serde::{Deserialize, Serialize};

use super::{FiniteGrads, GradScalerConfig, LossScale, NonFinite, ScaleError, ScaledGrads};

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

/// What a [`GradScaler`] goes on from, for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradScalerState {
    /// The scale.
    pub scale: f32,
    /// Finite steps in a row since the scale last changed or could not grow.
    pub growth_tracker: u32,
    /// Steps skipped since training began.
    pub skipped: u64,
}

impl GradScaler {
    pub(super) fn new(config: GradScalerConfig) -> Self {
        let state = GradScalerState { scale: config.init_scale, growth_tracker: 0, skipped: 0 };
        Self { config, state }
    }

    /// Goes on from a state.
    ///
    /// # Errors
    /// Where its scale is below the smallest one or not finite, or the scale should have grown.
    pub fn with_state(mut self, state: GradScalerState) -> Result<Self, ScaleError> {
        self.config.check_scale("loss scale", state.scale)?;
        let (found, interval) = (state.growth_tracker, self.config.growth_interval);
        if found >= interval {
            let wanted = format!("below the growth interval of {interval}");
            let (name, found) = ("count of finite steps", found.into());
            return Err(ScaleError::Setting { name, wanted, found });
        }
        self.state = state;
        Ok(self)
    }

    /// What to go on from.
    pub fn state(&self) -> GradScalerState {
        self.state
    }

    /// What to scale the loss of the next step by.
    pub fn loss_scale(&self) -> LossScale {
        LossScale::new(self.state.scale)
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
        let (found, present) = (gradients.scale().value(), self.state.scale);
        if found != present {
            return Err(ScaleError::OtherScale { found, present });
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
