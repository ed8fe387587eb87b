use fewshot_kernels::conv_stack::cpu::{BlockShape, StackShape};
use fewshot_kernels::{Precision, Route};

use super::{Cost, CostModel, elements_of_low};
use crate::Conv4Config;

/// Channels that come in, pixels of the convolution's output, and of the block's.
struct Block {
    from: usize,
    convolved: usize,
    out: usize,
    pool: bool,
}

impl Conv4Config {
    fn stack(&self, batch: usize) -> StackShape {
        let [c, h, w] = self.image;
        let block = |index| {
            let (stride, pool) = self.stride_and_pool(index);
            BlockShape { channels_out: self.channels, stride, pool }
        };
        StackShape { n: batch, c, h, w, blocks: (0..self.blocks).map(block).collect() }
    }

    fn block_sizes(&self) -> Vec<Block> {
        let [mut from, mut h, mut w] = self.image;
        let block = |index| {
            let (stride, pool) = self.stride_and_pool(index);
            let [high, wide] = [h.div_ceil(stride), w.div_ceil(stride)];
            let [down, across] = if pool { [high / 2, wide / 2] } else { [high, wide] };
            let block = Block { from, convolved: high * wide, out: down * across, pool };
            (from, h, w) = (self.channels, down, across);
            block
        };
        (0..self.blocks).map(block).collect()
    }

    /// Elements that one image leaves where every layer is an operation of its own.
    fn layer_by_layer(&self, route: Route) -> usize {
        let pixels = |block: &Block| match (route, block.pool) {
            // Deviations from the mean twice, normalised, scaled; of a pool the places of the
            // largest, three 64-bit integers for each of its pixels.
            (Route::Reference | Route::Forced, true) => 4 * block.convolved + 7 * block.out,
            (Route::Reference | Route::Forced, false) => 4 * block.convolved + block.out,
            // Convolution, norm, pool and ReLU each keep their input or leave it to the next.
            (_, true) => 2 * (block.convolved + block.out),
            (_, false) => 2 * block.convolved + block.out,
        };
        self.channels * self.block_sizes().iter().map(pixels).sum::<usize>()
    }

    /// The same under a low precision, where convolutions keep their inputs rounded, and nothing
    /// keeps them as they were.
    fn rounded(&self, route: Route) -> usize {
        let blocks = self.block_sizes();
        let between = blocks[..blocks.len() - 1].iter().map(|block| self.channels * block.out);
        let (image, between) = (self.image.iter().product(), between.sum());
        let low = |elements| elements_of_low(elements, route);
        self.layer_by_layer(route) - between + low(image) + low(between)
    }
}

/// # Conventions
/// A block has `9 c_in c_out h w` multiply-accumulates, `h w` the size of its convolution's output;
/// a context has `2 context channels` besides, whatever the batch.
///
/// On a CPU's fused route, the stack keeps of every block the input and the convolution's output,
/// both laid out for its vectors, and the latter only beyond 4 input channels; it is counted as it
/// is laid out. The parameters are kept as one vector, and their gradients come back as one vector
/// and then in parts. Tasks side by side take turns with the working memory.
///
/// Elsewhere every layer keeps its own: convolution, norm, pool and ReLU on an accelerator, and in
/// plain Burn operations the terms of the normalisation as well. So it is under a low precision on a
/// CPU, too, where rounded inputs are kept as f32; elsewhere they take half of that.
impl CostModel for Conv4Config {
    fn cost(&self, batch: usize, route: Route) -> Cost {
        let blocks = self.block_sizes();
        let macs = |block: &Block| 9 * block.from * self.channels * block.convolved;
        let context = 2 * self.context * self.channels;
        let stack = self.stack(batch);
        let widest = blocks.iter().map(|block| block.convolved).max().unwrap_or(0);
        let layers = |kept| [batch * kept, 0, 2 * batch * self.channels * widest, 0];
        let [kept, returned, passing, working] = match (self.precision, route) {
            (Precision::F32, Route::Host(_)) => {
                [stack.kept(), 2 * stack.parameters(), 0, stack.working()]
            }
            (Precision::F32, _) => layers(self.layer_by_layer(route)),
            _ => layers(self.rounded(route)),
        };
        Cost {
            macs: (batch * blocks.iter().map(macs).sum::<usize>() + context) as u64,
            kept: kept as u64,
            returned: returned as u64,
            passing: passing as u64,
            working: working as u64,
            outputs: (batch * self.features()) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Readout;

    const HOST: Route = Route::Host("any");

    #[test]
    fn multiply_accumulates_are_those_counted_by_hand() {
        let macs = |config: &Conv4Config, n| config.cost(n, HOST).macs;
        let mini = 12_192_768 + 65_028_096 + 16_257_024 + 3_686_400;
        assert_eq!(macs(&Conv4Config::mini_imagenet(), 1), mini);
        assert_eq!(macs(&Conv4Config::mini_imagenet(), 80), 80 * mini);
        let omniglot = 451_584 + 7_225_344 + 1_806_336 + 331_776;
        assert_eq!(macs(&Conv4Config::omniglot(), 1), omniglot);
        let strided = 112_896 + 1_806_336 + 589_824 + 147_456;
        assert_eq!(macs(&Conv4Config::omniglot_strided(), 2), 2 * strided);
        let context = Conv4Config::omniglot_strided().with_context(100);
        assert_eq!(macs(&context, 2), 2 * strided + 12_800);
    }

    #[test]
    fn maps_that_are_not_halved_cost_as_much_as_those_before_them() {
        let deep = Conv4Config::mini_imagenet().with_blocks(8).with_halve_every(2);
        let sides = [84, 84, 42, 42, 21, 21, 10, 10].map(|side| side * side);
        let macs = 9 * 64 * (3 * sides[0] + 64 * sides[1..].iter().sum::<usize>());
        assert_eq!(deep.cost(2, HOST).macs, 2 * macs as u64);
        assert_eq!(deep.cost(2, HOST).outputs, 2 * 1600);
        let side_by_side = 3 * (84 * 84 + 42 * 42 + 21 * 21 + 10 * 10);
        let halved = 2 * (84 * 84 + 2 * 42 * 42 + 2 * 21 * 21 + 2 * 10 * 10 + 5 * 5);
        let kept = deep.cost(1, Route::Device("CubeCL")).kept;
        assert_eq!(kept, 64 * (side_by_side + halved));
        let strided = deep.with_downsampling(crate::Downsampling::Stride);
        let convolved = [84, 42, 42, 21, 21, 11, 11, 6].map(|side| side * side);
        let macs = 9 * 64 * (3 * convolved[0] + 64 * convolved[1..].iter().sum::<usize>());
        assert_eq!(strided.cost(1, HOST).macs, macs as u64);
    }

    #[test]
    fn the_fused_stack_keeps_inputs_with_rings_and_convolutions() {
        // 64 channels are whole tiles of every instruction set. The first convolution is made
        // again: it has one channel to read.
        let inputs = 900 + 64 * (16 * 16 + 9 * 9 + 5 * 5) + 64;
        let convolutions = 64 * (14 * 14 + 7 * 7 + 3 * 3);
        let parameters = 9 * 64 + 3 * 9 * 64 * 64 + 4 * 3 * 64;
        let statistics = 4 * 4 * 64;
        let kept = |n| Conv4Config::omniglot().cost(n, HOST).kept as usize;
        for n in [1, 80] {
            assert_eq!(kept(n), n * (inputs + convolutions) + parameters + statistics);
        }
    }

    #[test]
    fn the_fused_stack_keeps_less_than_layers_do() {
        let config = Conv4Config::mini_imagenet();
        let kept = |route| config.cost(10, route).kept;
        let maps = 64 * (84 * 84 + 42 * 42 + 21 * 21 + 10 * 10);
        let halves = 64 * (42 * 42 + 21 * 21 + 10 * 10 + 5 * 5);
        assert_eq!(kept(Route::Device("CubeCL")), 10 * 2 * (maps + halves));
        assert_eq!(kept(Route::Reference), 10 * (4 * maps + 7 * halves));
        assert_eq!(kept(Route::Forced), kept(Route::Reference));
        assert!(2 * kept(HOST) < kept(Route::Device("CubeCL")));
    }

    #[test]
    fn low_precision_keeps_inputs_of_convolutions_in_its_own_type() {
        let config = Conv4Config::mini_imagenet();
        let low = config.clone().with_precision(Precision::MixedBf16);
        let kept = |config: &Conv4Config, route| config.cost(10, route).kept;
        let (image, inputs) = (3 * 84 * 84, 64 * (42 * 42 + 21 * 21 + 10 * 10));
        for route in [Route::Device("CubeCL"), Route::Reference] {
            assert_eq!(2 * kept(&low, route) + 10 * inputs, 2 * kept(&config, route) + 10 * image);
        }
        let layers = kept(&config, Route::Device("CubeCL"));
        assert_eq!(kept(&low, HOST), layers + 10 * image);
        assert_eq!(low.cost(10, HOST).macs, config.cost(10, HOST).macs);
    }

    #[test]
    fn features_are_counted_as_the_network_has_them() {
        let outputs = |config: &Conv4Config| config.cost(3, HOST).outputs;
        assert_eq!(outputs(&Conv4Config::mini_imagenet()), 3 * 1600);
        let averaged = Conv4Config::mini_imagenet().with_readout(Readout::Average);
        assert_eq!(outputs(&averaged), 3 * 64);
        assert_eq!(outputs(&Conv4Config::omniglot_strided().with_channels(32)), 3 * 32);
    }
}
