use fewshot_kernels::conv_stack::cpu::{BlockShape, Followed, StackShape};
use fewshot_kernels::{Precision, Route};

use super::{Cost, CostModel, SegmentCost};
use crate::Conv4Config;

/// Blocks of a network, one after the other.
struct Part<'a> {
    config: &'a Conv4Config,
    blocks: Vec<Block>,
}

/// Channels, height and width that come in, pixels of the convolution's output, and of the block's.
struct Block {
    input: [usize; 3],
    convolved: usize,
    out: usize,
    stride: usize,
    pool: bool,
}

impl Block {
    /// Pixels of the maps that its layers leave one by one.
    fn layers(&self, route: Route) -> usize {
        match (route, self.pool) {
            // Deviations from the mean twice, normalised, scaled; of a pool the places of the
            // largest, three 64-bit integers for each of its pixels.
            (Route::Reference | Route::Forced, true) => 4 * self.convolved + 7 * self.out,
            (Route::Reference | Route::Forced, false) => 4 * self.convolved + self.out,
            // What the convolution gives, and what norm, ReLU and pool make of it in one.
            _ => self.convolved + self.out,
        }
    }
}

impl Conv4Config {
    fn whole(&self) -> Part<'_> {
        Part { config: self, blocks: self.block_sizes() }
    }

    fn block_sizes(&self) -> Vec<Block> {
        let mut input = self.image;
        let block = |index| {
            let (stride, pool) = self.stride_and_pool(index);
            let [_, h, w] = input;
            let [high, wide] = [h.div_ceil(stride), w.div_ceil(stride)];
            let [down, across] = if pool { [high / 2, wide / 2] } else { [high, wide] };
            let (convolved, out) = (high * wide, down * across);
            let block = Block { input, convolved, out, stride, pool };
            input = [self.channels, down, across];
            block
        };
        (0..self.blocks).map(block).collect()
    }

    /// First block of every segment, each of which ends where maps are halved.
    ///
    /// The last one, which is not computed again, begins as soon as all that follows keeps no more
    /// than a segment before it: its graph takes no memory that there is not in any case.
    pub(crate) fn segment_starts(&self) -> Vec<usize> {
        let blocks = self.block_sizes();
        let kept = |(index, block): (usize, &Block)| {
            // That of an image's few channels is made again where a CPU's fused stack is.
            let convolved = if index > 0 { self.channels * block.convolved } else { 0 };
            block.input.iter().product::<usize>() + convolved
        };
        let kept: Vec<_> = blocks.iter().enumerate().map(kept).collect();
        let kept: Vec<usize> = kept.chunks(self.halve_every).map(|all| all.iter().sum()).collect();
        let last = kept.len() - 1;
        let begins = |&first: &usize| {
            let (before, after) = kept.split_at(first);
            after.iter().sum::<usize>() <= before.iter().copied().max().unwrap_or(0)
        };
        let last = (1..last).find(begins).unwrap_or(last);
        (0..=last).map(|segment| segment * self.halve_every).collect()
    }
}

impl Part<'_> {
    fn stack(&self, batch: usize) -> StackShape {
        let [c, h, w] = self.blocks[0].input;
        let channels_out = self.config.channels;
        let block = |&Block { stride, pool, .. }: &Block| BlockShape { channels_out, stride, pool };
        StackShape { n: batch, c, h, w, blocks: self.blocks.iter().map(block).collect() }
    }

    /// Elements of what goes into it of one image.
    fn inputs(&self) -> usize {
        self.blocks[0].input.iter().product()
    }

    /// Elements of the maps that leave it of one image.
    fn outputs(&self) -> usize {
        self.config.channels * self.blocks.last().map_or(0, |block| block.out)
    }

    /// Elements of the largest map of one image.
    fn widest(&self) -> usize {
        let convolved = self.blocks.iter().map(|block| self.config.channels * block.convolved);
        convolved.max().unwrap_or(0).max(self.inputs())
    }

    fn macs(&self, batch: usize) -> usize {
        let channels = self.config.channels;
        let macs = |block: &Block| 9 * block.input[0] * channels * block.convolved;
        batch * self.blocks.iter().map(macs).sum::<usize>()
    }

    /// Elements that one image leaves where every layer is an operation of its own.
    fn layer_by_layer(&self, route: Route) -> usize {
        let pixels = self.blocks.iter().map(|block| block.layers(route));
        self.config.channels * pixels.sum::<usize>()
    }

    /// Elements of gradients of one image beside what is kept there, where a backward pass through
    /// the layers has most: what is kept of a block goes when its gradients are there.
    fn gradients_layer_by_layer(&self, route: Route) -> usize {
        let mut kept = 0;
        let most = self.blocks.iter().map(|block| {
            kept += block.layers(route);
            // The gradient of its output takes the place of that, which the next block kept.
            kept + block.convolved
        });
        let most = most.max().unwrap_or(0);
        self.config.channels * (most - kept)
    }

    /// The same under a low precision, where convolutions keep their inputs rounded, and nothing
    /// keeps them as they were.
    fn rounded(&self, route: Route) -> usize {
        let between = self.blocks[1..].iter().map(|block| block.input.iter().product::<usize>());
        let between = between.sum();
        let low = |elements: usize| elements.div_ceil(2);
        self.layer_by_layer(route) - between + low(self.inputs()) + low(between)
    }

    fn cost(&self, batch: usize, route: Route) -> Cost {
        let stack = self.stack(batch);
        let layers = |kept| {
            // A gradient that is differentiated is made of single layers on an accelerator too, and
            // the normalised map is there again.
            let normalised = match route {
                Route::Device(_) => self.blocks.iter().map(|block| block.convolved).sum(),
                _ => 0,
            };
            let tangents = kept + self.config.channels * normalised;
            let passing = self.gradients_layer_by_layer(route);
            [batch * kept, batch * tangents, 0, batch * passing, 0]
        };
        let [kept, tangents, returned, passing, working] = match (self.config.precision, route) {
            (_, Route::Host(_)) => {
                [stack.kept(), stack.tangents(), stack.parameters(), 0, stack.working()]
            }
            (Precision::F32, _) => layers(self.layer_by_layer(route)),
            _ => layers(self.rounded(route)),
        };
        Cost {
            macs: self.macs(batch) as u64,
            kept: kept as u64,
            tangents: tangents as u64,
            returned: returned as u64,
            passing: passing as u64,
            working: working as u64,
            widest: (batch * self.widest()) as u64,
            outputs: (batch * self.outputs()) as u64,
        }
    }
}

fn is_fused(route: Route) -> bool {
    matches!(route, Route::Host(_))
}

/// Floats of the buffers that are there when every stack but the last has gone forward without keeping
/// anything, from the first on, and then all forward, kept, and backward, from the last to the first.
fn in_turns(stacks: &[StackShape]) -> usize {
    let mut buffers = Followed::default();
    for stack in &stacks[..stacks.len().saturating_sub(1)] {
        let used = buffers.forward(stack, 1, false);
        buffers.leave(used);
    }
    for (index, stack) in stacks.iter().enumerate().rev() {
        let kept = buffers.forward(stack, 1, true);
        buffers.backward(stack, 1, index > 0);
        buffers.leave(kept);
    }
    buffers.floats()
}

/// # Conventions
/// A block has `9 c_in c_out h w` multiply-accumulates, `h w` the size of its convolution's output;
/// a context has `2 context channels` besides, whatever the batch.
///
/// On a CPU's fused route, the stack keeps of every block the input and the convolution's output,
/// both laid out for its vectors, and the latter only beyond 4 input channels; it is counted as it
/// is laid out. The parameters are kept besides. Tasks side by side take turns with the working
/// memory.
///
/// Elsewhere every layer keeps its own: the convolution, and norm, ReLU and pool in one, on an
/// accelerator, and in plain Burn operations the terms of the normalisation as well. A low precision
/// keeps rounded inputs there, which take half of that; a fused stack rounds in place.
///
/// Balanced checkpointing leaves a fused stack alone, which keeps what it needs itself.
///
/// A segment keeps of itself what a network of its blocks does, and in a fused stack what it leaves
/// stays: buffers that are too few for the segments before it. On the way back through it there are
/// its output, the gradient of that and the weighed output, and the gradient of its input.
impl CostModel for Conv4Config {
    fn cost(&self, batch: usize, route: Route) -> Cost {
        let context = 2 * self.context * self.channels;
        let cost = self.whole().cost(batch, route);
        let outputs = (batch * self.features()) as u64;
        Cost { macs: cost.macs + context as u64, outputs, ..cost }
    }

    fn balanced_cost(&self, batch: usize, route: Route) -> Option<Cost> {
        is_fused(route).then(|| self.cost(batch, route))
    }

    fn stack(&self, batch: usize, route: Route) -> Option<StackShape> {
        is_fused(route).then(|| self.whole().stack(batch))
    }

    fn segment_costs(&self, batch: usize, route: Route) -> Option<Vec<SegmentCost>> {
        if self.precision != Precision::F32 && !is_fused(route) {
            return None;
        }
        let mut blocks = self.block_sizes();
        let starts = self.segment_starts();
        let parts = starts.iter().rev().map(|&start| blocks.split_off(start));
        let mut segments: Vec<_> = parts.map(|blocks| Part { config: self, blocks }).collect();
        segments.reverse();
        let stacks: Vec<_> = segments.iter().map(|part| part.stack(batch)).collect();
        let cost = |(index, part): (usize, &Part<'_>)| {
            let graph = part.cost(batch, route);
            let inputs = (batch * part.inputs()) as u64;
            let back = if index > 0 { inputs } else { 0 };
            let passing = graph.passing + 3 * graph.outputs + back;
            let graph = Cost { passing, ..graph };
            let Route::Host(_) = route else { return SegmentCost { inputs, graph, left: 0 } };
            let [own, others] = [index, index + 1].map(|from| in_turns(&stacks[from..]));
            let left = own.saturating_sub(others) as u64;
            SegmentCost { inputs, graph: Cost { kept: left, working: 0, ..graph }, left }
        };
        Some(segments.iter().enumerate().map(cost).collect())
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
    fn the_largest_map_is_a_convolutions_output() {
        for (config, widest) in [
            (Conv4Config::mini_imagenet(), 64 * 84 * 84),
            (Conv4Config::omniglot_strided(), 64 * 14 * 14),
            (Conv4Config::omniglot_strided().with_channels(2), 28 * 28),
        ] {
            for route in [HOST, Route::Device("CubeCL")] {
                assert_eq!(config.cost(3, route).widest, 3 * widest);
            }
        }
    }

    #[test]
    fn maps_that_are_not_halved_cost_as_much_as_those_before_them() {
        let deep = Conv4Config::mini_imagenet().with_blocks(8).with_halve_every(2);
        let sides = [84, 84, 42, 42, 21, 21, 10, 10].map(|side| side * side);
        let macs = 9 * 64 * (3 * sides[0] + 64 * sides[1..].iter().sum::<usize>());
        assert_eq!(deep.cost(2, HOST).macs, 2 * macs as u64);
        assert_eq!(deep.cost(2, HOST).outputs, 2 * 1600);
        let side_by_side = 2 * (84 * 84 + 42 * 42 + 21 * 21 + 10 * 10);
        let halved = 84 * 84 + 2 * 42 * 42 + 2 * 21 * 21 + 2 * 10 * 10 + 5 * 5;
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
        assert_eq!(kept(Route::Device("CubeCL")), 10 * (maps + halves));
        assert_eq!(kept(Route::Reference), 10 * (4 * maps + 7 * halves));
        assert_eq!(kept(Route::Forced), kept(Route::Reference));
        assert!(2 * kept(HOST) < kept(Route::Device("CubeCL")));
    }

    #[test]
    fn gradients_are_counted_where_most_is_there() {
        let device = Route::Device("CubeCL");
        let passing = |config: Conv4Config| config.cost(10, device).passing;
        // In the first block: what it kept and the gradient of its norm, less what all blocks kept.
        let [kept, all] = [784 + 196, 784 + 196 + 196 + 49 + 49 + 9 + 9 + 1];
        assert_eq!(passing(Conv4Config::omniglot()), 10 * 64 * (kept + 784 - all));
        let [kept, all] = [2 * 196, 2 * (196 + 49 + 16 + 4)];
        assert_eq!(passing(Conv4Config::omniglot_strided()), 10 * 64 * (kept + 196 - all));
    }

    #[test]
    fn segments_end_where_maps_are_halved() {
        let deep = Conv4Config::mini_imagenet().with_blocks(8).with_halve_every(2);
        let layers = Route::Device("CubeCL");
        let found = deep.segment_costs(10, layers).expect("layers have formulas");
        let inputs = [3 * 84 * 84, 64 * 42 * 42];
        assert_eq!(
            found.iter().map(|part| part.inputs).collect::<Vec<_>>(),
            inputs.map(|n| 10 * n)
        );
        assert_eq!(found.iter().map(|part| part.graph.outputs).sum::<u64>(), {
            10 * 64 * (42 * 42 + 5 * 5)
        });
        let whole = deep.cost(10, layers);
        let sum = |of: fn(&Cost) -> u64| found.iter().map(|part| of(&part.graph)).sum::<u64>();
        assert_eq!((sum(|cost| cost.kept), sum(|cost| cost.macs)), (whole.kept, whole.macs));
        assert!(found.iter().all(|part| part.left == 0));

        let host = deep.segment_costs(10, HOST).expect("the fused stack has formulas");
        let first = StackShape {
            n: 10,
            c: 3,
            h: 84,
            w: 84,
            blocks: vec![
                BlockShape { channels_out: 64, stride: 1, pool: false },
                BlockShape { channels_out: 64, stride: 1, pool: true },
            ],
        };
        let all = host.iter().map(|part| part.left).sum::<u64>();
        assert!(host[0].graph.kept as usize > first.kept() && host[0].left < all);
        let low = deep.with_precision(Precision::MixedBf16);
        assert_eq!(low.segment_costs(1, layers), None);
        assert_eq!(low.segment_costs(10, HOST), Some(host));
    }

    #[test]
    fn the_last_segment_keeps_no_more_than_one_before_it() {
        let starts = |config: &Conv4Config| config.segment_starts();
        let mini = Conv4Config::mini_imagenet();
        let deep = mini.clone().with_blocks(8).with_halve_every(2);
        assert_eq!(starts(&deep), [0, 2]);
        // The first convolution is made again anyway, and the others keep more than the image.
        assert_eq!(starts(&mini), [0, 1, 2]);
        assert_eq!(starts(&Conv4Config::omniglot_strided()), [0, 1, 2]);
        assert_eq!(starts(&mini.clone().with_blocks(2)), [0, 1]);
        assert_eq!(starts(&mini.with_blocks(1)), [0]);
        assert_eq!(starts(&deep.with_blocks(3)), [0, 2]);
    }

    #[test]
    fn balanced_checkpointing_leaves_the_fused_stack_alone() {
        let config = Conv4Config::omniglot();
        assert_eq!(config.balanced_cost(3, HOST), Some(config.cost(3, HOST)));
        assert_eq!(config.balanced_cost(3, Route::Device("CubeCL")), None);
        let low = config.clone().with_precision(Precision::MixedBf16);
        assert_eq!(low.balanced_cost(3, HOST), config.balanced_cost(3, HOST));
        assert_eq!(low.stack(3, HOST), config.stack(3, HOST));
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
        // The fused stack rounds in place.
        assert_eq!(low.cost(10, HOST), config.cost(10, HOST));
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
