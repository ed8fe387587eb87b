use std::fmt;

use burn::config::Config;
use serde::{Deserialize, Serialize};

use super::parameters::Slot;
use super::{AdaptError, InnerRule, setting};

/// Adaptation of a module: by gradient descent on all parameters, differentiated exactly, if nothing else
/// is set.
#[derive(Config, Debug, PartialEq)]
pub struct InnerLoop {
    /// Number of steps.
    pub steps: usize,
    /// Step length, where no rate is learned.
    pub rate: f64,
    /// Effect of a gradient on a parameter.
    #[config(default = "InnerRule::GradientDescent")]
    pub rule: InnerRule,
    /// Order of the outer gradient: through the inner gradients or past them.
    #[config(default = "Order::Second")]
    pub order: Order,
    /// Parameters that move.
    #[config(default = "Mask::All")]
    pub mask: Mask,
    /// Longest joint norm of a task's inner gradient; longer ones are scaled down.
    pub clip_norm: Option<f64>,
}

/// Order of the outer gradient: through the inner gradients or past them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Inner gradients are constants.
    First,
    /// The exact derivative.
    #[default]
    Second,
}

/// Way to compute the exact derivative of an inner loop; both ways give the same within rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecondOrder {
    /// By the graph of the whole loop.
    #[default]
    Unrolled,
    /// Step by step from the last to the first, each but the last computed again from its fast
    /// weights: memory for the graph of one step.
    Chain,
}

/// Parameters that an inner loop adapts, by the beginning of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mask {
    /// All that are not frozen.
    #[default]
    All,
    /// Parameters in modules of these names, as `head` or `encoder.blocks.3`.
    Only(Vec<String>),
    /// Parameters in no module of these names.
    Except(Vec<String>),
}

impl InnerLoop {
    /// With another number of steps.
    pub fn with_steps(self, steps: usize) -> Self {
        Self { steps, ..self }
    }

    /// # Errors
    /// When a number makes no sense.
    pub fn check(&self) -> Result<(), AdaptError> {
        let rate = self.rate;
        setting("rate", "a number from 0 on", rate, rate.is_finite() && rate >= 0.0)?;
        if let Some(norm) = self.clip_norm {
            setting("norm", "a positive number", norm, norm.is_finite() && norm > 0.0)?;
        }
        self.rule.check(self.order)
    }
}

impl Mask {
    pub(crate) fn select(&self, slots: &[Slot]) -> Result<Vec<bool>, AdaptError> {
        let adapted: Vec<_> = slots.iter().map(|slot| slot.free && self.has(&slot.path)).collect();
        if adapted.contains(&true) {
            return Ok(adapted);
        }
        let free = slots.iter().filter(|slot| slot.free);
        let names = free.map(|slot| slot.path.clone()).collect();
        Err(AdaptError::NothingMoves { mask: self.to_string(), names })
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        let inside = |module: &String| {
            let rest = path.strip_prefix(module.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        match self {
            Self::All => true,
            Self::Only(modules) => modules.iter().any(inside),
            Self::Except(modules) => !modules.iter().any(inside),
        }
    }
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Only(modules) => write!(f, "only {}", modules.join(" and ")),
            Self::Except(modules) => write!(f, "all but {}", modules.join(" and ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_names_one_module_or_several() {
        let names = || vec!["head".to_owned(), "encoder.blocks.1".to_owned()];
        for (path, named) in [
            ("head.weight", true),
            ("head", true),
            ("encoder.blocks.1.conv.weight", true),
            ("encoder.blocks.10.conv.weight", false),
            ("encoder.blocks.0.conv.weight", false),
            ("headless.weight", false),
        ] {
            assert_eq!(Mask::Only(names()).has(path), named, "{path}");
            assert_eq!(Mask::Except(names()).has(path), !named, "{path}");
            assert!(Mask::All.has(path));
        }
        assert_eq!(Mask::All.to_string(), "all");
        assert_eq!(Mask::Only(names()).to_string(), "only head and encoder.blocks.1");
        assert_eq!(Mask::Except(names()).to_string(), "all but head and encoder.blocks.1");
    }
}
