use crate::plasticity::PlasticityError;

/// When the layers of a hierarchy fire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    periods: Vec<usize>,
}

impl Schedule {
    /// Periods of `layers` layers, each a multiple of the one below.
    ///
    /// # Errors
    /// Without a layer, with another number of periods, and with one that is no such multiple.
    pub fn new(periods: &[usize], layers: usize) -> Result<Self, PlasticityError> {
        if layers == 0 {
            return Err(PlasticityError::NoLayers { actual: 1 });
        }
        if periods.len() != layers {
            return Err(PlasticityError::Periods { layers, actual: periods.len() });
        }
        let mut below = 1;
        for (index, &actual) in periods.iter().enumerate() {
            if actual == 0 || actual % below != 0 {
                return Err(PlasticityError::Period { layer: index + 1, below, actual });
            }
            below = actual;
        }
        Ok(Self { periods: periods.to_vec() })
    }

    /// Ticks from one firing of a layer to the next.
    pub fn period(&self, layer: usize) -> usize {
        self.periods[layer]
    }

    /// Number of firings below a layer until the layer fires.
    pub fn ratio(&self, layer: usize) -> usize {
        match layer {
            0 => self.periods[0],
            layer => self.periods[layer] / self.periods[layer - 1],
        }
    }

    /// True if a layer fires at a tick; then all layers below it fire too.
    pub fn fires(&self, layer: usize, tick: usize) -> bool {
        tick.is_multiple_of(self.periods[layer])
    }

    /// Number of firings of a layer in the first `ticks` ticks.
    pub fn firings(&self, layer: usize, ticks: usize) -> usize {
        ticks.div_ceil(self.periods[layer])
    }
}
