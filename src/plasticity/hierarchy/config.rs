use burn::config::Config;
use burn::tensor::backend::Backend;
use fewshot_kernels::local_learning::{Activation, Aggregate};

use super::{Schedule, TemporalHierarchy};
use crate::plasticity::{PlasticLinearConfig, PlasticityError};

/// Configuration of a [`TemporalHierarchy`].
#[derive(Config, Debug)]
pub struct HierarchyConfig {
    /// Length of the input, then numbers of neurons from the fastest layer to the slowest.
    pub levels: Vec<usize>,
    /// Periods of the layers in ticks, each a multiple of the one before.
    pub periods: Vec<usize>,
    /// What a layer sees of the outputs below it.
    #[config(default = "Aggregate::Mean")]
    pub aggregate: Aggregate,
    /// Strength of the gain from parents on children; 0 is none.
    #[config(default = 0.0)]
    pub top_down: f64,
    /// What neurons make of their weighted sums.
    #[config(default = "Activation::Linear")]
    pub activation: Activation,
}

impl HierarchyConfig {
    /// Draws the weights.
    ///
    /// # Errors
    /// Where sizes, periods or the gain make no sense.
    pub fn init<B: Backend>(
        &self,
        device: &B::Device,
    ) -> Result<TemporalHierarchy<B>, PlasticityError> {
        let found = self.levels.len();
        if found < 2 {
            return Err(PlasticityError::NoLayers { found });
        }
        if self.levels.contains(&0) {
            let (name, wanted) = ("size of a level", "at least 1");
            return Err(PlasticityError::Setting { name, wanted, found: 0.0 });
        }
        let schedule = Schedule::new(&self.periods, found - 1)?;
        let layer = |(index, sizes): (usize, &[usize])| {
            let inputs = self.aggregate.length(sizes[0], schedule.ratio(index));
            PlasticLinearConfig::new(inputs, sizes[1]).with_activation(self.activation).init(device)
        };
        let layers = self.levels.windows(2).enumerate().map(layer).collect();
        TemporalHierarchy::new(layers, &self.periods, self.aggregate)?.with_top_down(self.top_down)
    }
}
