use fewshot_kernels::Route;

use super::{Cost, CostModel};
use crate::MlpConfig;

/// # Conventions
/// A layer has `inputs * outputs` multiply-accumulates an example. Between two layers the values
/// before and after the ReLU are kept, and the inputs with their context where there is one. Fused
/// layers of tasks side by side keep only those after it, which is not taken off. Where a gradient is
/// differentiated on a host, the gradients of all outputs are kept; that fused layers pad them to whole
/// vectors is not added. Under a low precision, what is kept of a layer's inputs is rounded, those of
/// the first layer too.
impl CostModel for MlpConfig {
    fn cost(&self, batch: usize, route: Route) -> Cost {
        let first = self.d_input + self.context;
        let inputs = || std::iter::once(first).chain(self.layers.iter().copied());
        let pairs = || inputs().zip(&self.layers);
        let (outputs, hidden) = match self.layers.split_last() {
            Some((last, hidden)) => (*last, hidden.iter().sum::<usize>()),
            None => (0, 0),
        };
        let joined = if self.context > 0 { first } else { 0 };
        let saved = match (self.precision.low(), route) {
            (None, _) => 2 * hidden + joined,
            // What is rounded stays f32 there.
            (_, Route::Host(_)) => hidden + first + hidden,
            _ => hidden + (first + hidden).div_ceil(2),
        };
        let each = |count: usize| (batch * count) as u64;
        Cost {
            macs: each(pairs().map(|(from, to)| from * to).sum()),
            saved: each(saved),
            intermediate_grads: match route {
                Route::Host(_) => each(self.layers.iter().sum()),
                _ => 0,
            },
            saved_tangents: each(saved),
            parameter_grads: 0,
            activation_grads: each(pairs().map(|(from, to)| from + to).max().unwrap_or(0)),
            workspace: 0,
            largest_map: each(inputs().max().unwrap_or(0)),
            outputs: each(outputs),
        }
    }
}

#[cfg(test)]
mod tests {
    use fewshot_kernels::Precision;

    use super::*;

    #[test]
    fn layers_are_those_counted_by_hand() {
        let config = MlpConfig::new(1).with_layers(vec![40, 40, 1]);
        let cost = config.cost(10, Route::Reference);
        assert_eq!(cost.macs, 10 * (40 + 1600 + 40));
        assert_eq!(cost.saved, 10 * 2 * (40 + 40));
        assert_eq!(cost.intermediate_grads, 0);
        assert_eq!(config.cost(10, Route::Host("any")).intermediate_grads, 10 * 81);
        assert_eq!(cost.activation_grads, 10 * 80);
        assert_eq!(cost.largest_map, 10 * 40);
        assert_eq!(cost.outputs, 10);
    }

    #[test]
    fn a_context_is_more_inputs_which_are_kept() {
        let config = MlpConfig::new(1).with_layers(vec![40, 40, 1]).with_context(5);
        let cost = config.cost(10, Route::Reference);
        assert_eq!(cost.macs, 10 * (6 * 40 + 1600 + 40));
        assert_eq!(cost.saved, 10 * (2 * (40 + 40) + 6));
    }

    #[test]
    fn low_precision_keeps_rounded_inputs() {
        let config = MlpConfig::new(2).with_layers(vec![40, 40, 1]);
        let low = config.with_precision(Precision::MixedF16);
        assert_eq!(low.cost(10, Route::Host("any")).saved, 10 * (80 + 82));
        assert_eq!(low.cost(10, Route::Device("CubeCL")).saved, 10 * (80 + 41));
    }

    #[test]
    fn one_layer_keeps_nothing_but_its_inputs() {
        let cost = MlpConfig::new(784).with_layers(vec![5]).cost(2, Route::Reference);
        assert_eq!((cost.macs, cost.saved, cost.outputs), (2 * 784 * 5, 0, 10));
    }
}
