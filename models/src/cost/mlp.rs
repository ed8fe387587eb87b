use fewshot_kernels::Route;

use super::{Cost, CostModel};
use crate::MlpConfig;

/// # Conventions
/// A layer has `inputs * outputs` multiply-accumulates an example. Between two layers the values
/// before and after the ReLU are saved, and the inputs with their context or as they are rounded, where
/// there is one or the other. A gradient that is differentiated saves those of all outputs.
impl CostModel for MlpConfig {
    fn cost(&self, batch: usize, _: Route) -> Cost {
        let first = self.d_input + self.context;
        let inputs = || std::iter::once(first).chain(self.layers.iter().copied());
        let pairs = || inputs().zip(&self.layers);
        let hidden: usize = self.layers.iter().rev().skip(1).sum();
        let copied = self.context > 0 || self.precision.low().is_some();
        let each = |count: usize| (batch * count) as u64;
        let workspace = each(pairs().map(|(from, to)| from + to).max().unwrap_or(0));
        Cost {
            macs: each(pairs().map(|(from, to)| from * to).sum()),
            inputs: each(self.d_input),
            saved: each(2 * hidden + if copied { first } else { 0 }),
            intermediate_grads: each(self.layers.iter().sum()),
            tangents: 0,
            workspace,
            lane_workspace: workspace,
            largest_map: each(inputs().max().unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use fewshot_kernels::Precision;

    use super::*;

    const HOST: Route = Route::Host("any");

    #[test]
    fn layers_are_those_counted_by_hand() {
        let config = MlpConfig::new(1).with_layers(vec![40, 40, 1]);
        let cost = config.cost(10, HOST);
        assert_eq!(cost.macs, 10 * (40 + 1600 + 40));
        assert_eq!(cost.saved, 10 * 2 * (40 + 40));
        assert_eq!(cost.intermediate_grads, 10 * 81);
        assert_eq!(cost.workspace, 10 * 80);
        assert_eq!(cost.largest_map, 10 * 40);
    }

    #[test]
    fn a_context_is_more_inputs_which_are_saved_and_so_are_rounded_ones() {
        let config = MlpConfig::new(1).with_layers(vec![40, 40, 1]);
        let low = config.clone().with_precision(Precision::MixedF16).cost(10, HOST);
        assert_eq!(low.saved, 10 * (2 * (40 + 40) + 1));
        let cost = config.with_context(5).cost(10, HOST);
        assert_eq!(cost.macs, 10 * (6 * 40 + 1600 + 40));
        assert_eq!(cost.saved, 10 * (2 * (40 + 40) + 6));
    }

    #[test]
    fn one_layer_saves_nothing_but_its_inputs() {
        let cost = MlpConfig::new(784).with_layers(vec![5]).cost(2, HOST);
        assert_eq!((cost.macs, cost.saved, cost.inputs), (2 * 784 * 5, 0, 2 * 784));
    }
}
