use fewshot_kernels::Route;

use super::{Cost, CostModel};
use crate::ResNet12Config;

/// Side of the images.
const SIDE: usize = 84;

/// Parts of a batch that have a gradient of a weight each, on a CPU.
const PARTS: usize = 8;

impl ResNet12Config {
    /// Channels that come into each block and go out of it, and pixels before its pool.
    fn block_sizes(&self) -> impl Iterator<Item = [usize; 3]> + '_ {
        let inputs = [self.channels].into_iter().chain(self.widths);
        let sides = (0..).map(|halved| SIDE >> halved);
        let sizes = inputs.zip(self.widths).zip(sides);
        sizes.map(|((from, to), side)| [from, to, side * side])
    }
}

/// # Conventions
/// Images are 84x84, as in the papers. A block saves eight maps of the size of its convolutions' outputs: the
/// results of four convolutions, and of norm and ReLU after two of them. In plain Burn operations it saves twenty,
/// since a norm leaves four maps in place of one. A gradient that is differentiated saves three quarters of that
/// besides.
impl CostModel for ResNet12Config {
    fn cost(&self, batch: usize, route: Route) -> Cost {
        let each = |count: usize| (batch * count) as u64;
        let macs = |[from, to, pixels]: [usize; 3]| (10 * from + 18 * to) * to * pixels;
        let maps: Vec<usize> = self.block_sizes().map(|[_, to, pixels]| to * pixels).collect();
        let largest_map = each(maps.iter().copied().max().unwrap_or(0));
        let saved_maps = match route {
            Route::Host(_) | Route::Device(_) => 8,
            Route::Reference | Route::Forced => 20,
        };
        let saved = each(saved_maps * maps.iter().sum::<usize>());
        let largest_weight = self.widths.iter().map(|width| 9 * width * width).max();
        let workspace = 3 * largest_map + (PARTS * largest_weight.unwrap_or(0)) as u64;
        Cost {
            macs: each(self.block_sizes().map(macs).sum()),
            inputs: each(self.channels * SIDE * SIDE),
            saved,
            intermediate_grads: saved / 4 * 3,
            tangents: 0,
            workspace,
            lane_workspace: workspace,
            largest_map,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiply_accumulates_are_those_counted_by_hand() {
        let cost = ResNet12Config::new().cost(2, Route::Host("any"));
        let block =
            |from: usize, to: usize, side: usize| (9 * from + 2 * 9 * to + from) * to * side * side;
        let macs = [block(3, 64, 84), block(64, 160, 42), block(160, 320, 21), block(320, 640, 10)];
        assert_eq!(cost.macs, 2 * macs.iter().sum::<usize>() as u64);
        assert_eq!(cost.largest_map, 2 * 64 * 84 * 84);
    }
}
