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
        let (growth, backoff, min) = (self.growth_factor, self.backoff_factor, self.min_scale);
        let (name, wanted, found) = match self.growth_interval {
            _ if !(growth > 1.0 && growth.is_finite()) => {
                ("growth factor", "finite and above 1", growth)
            }
            _ if !(backoff > 0.0 && backoff < 1.0) => {
                ("backoff factor", "between 0 and 1", backoff)
            }
            0 => ("growth interval", "at least 1 step", 0.0),
            // A smaller one has no finite inverse in f32.
            _ if !min.is_normal() || min < 0.0 => {
                ("smallest loss scale", "finite and at least 1.2e-38", min.into())
            }
            _ => {
                self.check_scale("initial loss scale", self.init_scale)?;
                return Ok(GradScaler::new(self));
            }
        };
        Err(ScaleError::Setting { name, wanted: wanted.to_owned(), found })
    }

    pub(super) fn check_scale(&self, name: &'static str, found: f32) -> Result<(), ScaleError> {
        let wanted = match found.is_finite() {
            true if found >= self.min_scale => return Ok(()),
            true => format!("at least {}", f64::from(self.min_scale)),
            false => "finite".to_owned(),
        };
        Err(ScaleError::Setting { name, wanted, found: found.into() })
    }
}
