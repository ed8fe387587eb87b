use fewshot_kernels::conv_stack::cpu::{BlockShape, StackShape};
use fewshot_kernels::{Route, conv2d};

use super::{Cost, CostModel};
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
    /// The last one, which is not computed again, begins as soon as all that follows keeps no more than one segment
    /// before it: that much memory is needed anyway.
    pub(crate) fn segment_starts(&self) -> Vec<usize> {
        let blocks = self.block_sizes();
        let saved = |(index, block): (usize, &Block)| {
            // That of an image's few channels is made again where a CPU's fused stack is.
            let convolved = if index > 0 { self.channels * block.convolved } else { 0 };
            block.input.iter().product::<usize>() + convolved
        };
        let saved: Vec<_> = blocks.iter().enumerate().map(saved).collect();
        let saved: Vec<usize> =
            saved.chunks(self.halve_every).map(|all| all.iter().sum()).collect();
        let last = saved.len() - 1;
        let begins = |&first: &usize| {
            let (before, after) = saved.split_at(first);
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

    /// Elements of its input of one image.
    fn inputs(&self) -> usize {
        self.blocks[0].input.iter().product()
    }

    /// Elements of the maps that leave it of one image.
    fn outputs(&self) -> usize {
        self.config.channels * self.blocks.last().map_or(0, |block| block.out)
    }

    /// Elements of the largest map of one image.
    fn largest_map(&self) -> usize {
        let convolved = self.blocks.iter().map(|block| self.config.channels * block.convolved);
        convolved.max().unwrap_or(0).max(self.inputs())
    }

    /// Multiply-accumulates of one image.
    fn macs(&self) -> usize {
        let channels = self.config.channels;
        let macs = |block: &Block| 9 * block.input[0] * channels * block.convolved;
        self.blocks.iter().map(macs).sum()
    }

    /// Elements that one image leaves where every layer is an operation of its own.
    fn layer_by_layer(&self, route: Route) -> usize {
        let pixels = self.blocks.iter().map(|block| block.layers(route));
        self.config.channels * pixels.sum::<usize>()
    }

    /// Elements of gradients of one image where a backward pass has most: of a block's two maps and of
    /// its input.
    fn activation_grads(&self) -> usize {
        let channels = self.config.channels;
        let first = self.blocks.iter().map(|block| block.convolved + block.out);
        let inputs = self.blocks.iter().skip(1).map(|block| block.input[1] * block.input[2]);
        let each = first.zip([0].into_iter().chain(inputs));
        channels * each.map(|(maps, input)| maps + input).max().unwrap_or(0)
    }

    /// Elements of the gradient of a weight while it is in parts.
    fn weight_parts(&self, batch: usize) -> usize {
        let channels = self.config.channels;
        let parts = self.blocks.iter().map(|block| {
            let depth = 9 * block.input[0];
            conv2d::weight_parts(channels, depth, batch * block.convolved, 1) * channels * depth
        });
        parts.max().unwrap_or(0)
    }

    fn cost(&self, batch: usize, route: Route) -> Cost {
        let count = |elements: usize| (batch * elements) as u64;
        let whole = Cost {
            macs: count(self.macs()),
            inputs: count(self.inputs()),
            largest_map: count(self.largest_map()),
            ..Cost::default()
        };
        if let Route::Host(_) = route {
            let stack = self.stack(batch);
            let workspace = |lanes| stack.workspace_floats(lanes) as u64;
            let saved = stack.saved_floats() as u64;
            return Cost {
                saved,
                tangents: saved,
                intermediate_grads: stack.intermediate_grad_floats() as u64,
                workspace: workspace(1),
                lane_workspace: workspace(2),
                ..whole
            };
        }
        let saved = count(self.layer_by_layer(route));
        let grads = count(self.activation_grads());
        let (saved_low, parts) = match route {
            Route::Device(_) => (saved.div_ceil(2), self.weight_parts(batch) as u64),
            _ => (saved, 0),
        };
        Cost {
            saved: if self.config.precision.low().is_some() { saved_low } else { saved },
            intermediate_grads: saved,
            workspace: grads + parts,
            lane_workspace: grads,
            ..whole
        }
    }
}

/// # Conventions
/// A block has `9 c_in c_out h w` multiply-accumulates, `h w` the size of its convolution's output; a context has
/// `2 context channels` besides, whatever the batch.
///
/// | route | saved for the backward pass | under a low precision |
/// |---|---|---|
/// | fused on a CPU | parameters; of every block its input and, beyond 4 input channels, its convolution's output, as they are laid out for vectors | the same |
/// | fused on an accelerator | of every block its convolution's output and its own, and the gradients of both where these are differentiated | half of it, but gradients are counted as f32 |
/// | plain Burn operations | of every layer its results: convolution, terms of the normalisation, ReLU, pool | the same |
///
/// A segment saves what a network of its blocks would. The backward pass through it has besides its output, the
/// gradient of that and the weighted output, and the gradient of its input.
impl CostModel for Conv4Config {
    fn cost(&self, batch: usize, route: Route) -> Cost {
        let context = 2 * self.context * self.channels;
        let cost = self.whole().cost(batch, route);
        Cost { macs: cost.macs + context as u64, ..cost }
    }

    fn segment_costs(&self, batch: usize, route: Route) -> Option<Vec<Cost>> {
        let mut blocks = self.block_sizes();
        let part = |start| Part { config: self, blocks: blocks.split_off(start) };
        let mut segments: Vec<_> = self.segment_starts().into_iter().rev().map(part).collect();
        segments.reverse();
        let cost = |part: &Part<'_>| {
            let cost = part.cost(batch, route);
            let ends = (batch * 3 * part.outputs()) as u64 + cost.inputs;
            Cost { workspace: cost.workspace + ends, ..cost }
        };
        Some(segments.iter().map(cost).collect())
    }
}

#[cfg(test)]
mod tests;
