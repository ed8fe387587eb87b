use burn::config::Config;

use super::{GradScaler, ScaleError};

/// Configuration of a [`GradScaler`].
///
/// # Conventions
/// Names, defaults and meaning of `torch.amp.GradScaler`, but for `min_scale`, which it lacks.
#[derive(Config, Debug, PartialEq)]
pub struct GradScalerConfig {
    /// The scale at first.
    #[config(default = 65536.0)]
    pub init_scale: f32,
    /// What the scale is multiplied by after enough finite steps; above 1.
    #[config(default = 2.0)]
    pub growth_factor: f64,
    /// What the scale is multiplied by after gradients that are not finite; between 0 and 1.
    #[config(default = 0.5)]
    pub backoff_factor: f64,
    /// Finite steps in a row after which the scale grows.
    #[config(default = 2000)]
    pub growth_interval: u32,
    /// What the scale never falls below; gradients that are not finite there are an error.
    #[config(default = 1.0)]
    pub min_scale: f32,
}

impl GradScalerConfig {
    /// A scaler that begins with `init_scale`.
    ///
    /// # Errors
    /// Where a number makes no sense.
    pub fn init(self) -> Result<GradScaler, ScaleError> {
        self.check()?;
        Ok(GradScaler::new(self))
    }

    fn check(&self) -> Result<(), ScaleError> {
        let wrong = |name, wanted, found| Err(ScaleError::Setting { name, wanted, found });
        let (growth, backoff) = (self.growth_factor, self.backoff_factor);
        if !(growth > 1.0 && growth.is_finite()) {
            return wrong("growth factor", "finite and above 1", growth);
        }
        if !(backoff > 0.0 && backoff < 1.0) {
            return wrong("backoff factor", "between 0 and 1", backoff);
        }
        if self.growth_interval == 0 {
            return wrong("growth interval", "at least 1 step", 0.0);
        }
        // A smaller one has no finite inverse in f32.
        if !self.min_scale.is_normal() || self.min_scale < 0.0 {
            let wanted = "finite and at least 1.2e-38";
            return wrong("smallest loss scale", wanted, self.min_scale.into());
        }
        self.check_scale("initial loss scale", self.init_scale)
    }

    pub(super) fn check_scale(&self, name: &'static str, found: f32) -> Result<(), ScaleError> {
        let (found, limit) = (f64::from(found), f64::from(self.min_scale));
        if !found.is_finite() {
            return Err(ScaleError::Setting { name, wanted: "finite", found });
        }
        match found >= limit {
            true => Ok(()),
            false => Err(ScaleError::Range { name, relation: "at least", limit, found }),
        }
    }
}
