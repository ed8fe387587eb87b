//! The layout of one block, and its cut into cache-sized pieces.

use std::ops::Range;

use fewshot_simd::activate::Strip;
use fewshot_simd::amx::Amx;
use fewshot_simd::buffers::{Buffer, CowBuffer};
use fewshot_simd::convolution::{Convolution, Term};
use fewshot_simd::instruction_set::InstructionSet;
use fewshot_simd::layout::{Map, strips};

use super::norm::{Deviation, Norm};
use super::parameters::{Parameters, SavedParameters};
use super::shape::{Geometry, StackShape};
use crate::precision::Precision;

/// Input channels up to which a convolution is cheaper to compute again than to store.
const RECOMPUTED_CHANNELS: usize = 4;

/// Layout of one block.
pub struct Plan {
    pub block: Geometry,
    /// The block's input, with a ring.
    pub input: Map,
    /// The convolution's output.
    pub conv: Map,
    /// The block's output; the ring is for the next block.
    pub out: Map,
    /// The gradient of the convolution's output, with a ring.
    pub delta: Map,
    /// The gradient of the block's input.
    pub input_grad: Map,
    /// True if the convolution's output is computed again instead of stored.
    pub recompute: bool,
    /// From the input to the convolution's output.
    pub forward: Convolution,
    /// From `delta` to `input_grad`.
    pub turned: Convolution,
    /// Images to take through both together.
    pub group: usize,
    /// The precision that the operands and the results of convolutions are rounded to.
    precision: Precision,
    /// True if the block's output is kept as it is, and rounded, if at all, where it is read.
    exact_output: bool,
}

impl Plan {
    /// The plans of every block, for tiles of `tile` channels.
    pub fn all(
        shape: &StackShape,
        tile: usize,
        (precision, amx): (Precision, Option<Amx>),
    ) -> Vec<Self> {
        let blocks = shape.geometry();
        let last = blocks.len() - 1;
        let amx = amx.filter(|_| precision == Precision::MixedBf16);
        let plan = |(i, block): (usize, &Geometry)| {
            let plan = Self::new(*block, tile, [i == 0, i == last], shape.n, amx);
            Self { precision, ..plan }
        };
        let mut plans: Vec<_> = blocks.iter().enumerate().map(plan).collect();
        for k in 0..last {
            plans[k].exact_output = precision.low().is_none() || plans[k + 1].forward.rounds();
        }
        plans
    }

    /// The maps of the inputs of all blocks, then of the output.
    pub fn maps(plans: &[Self]) -> impl Iterator<Item = Map> {
        plans.iter().map(|plan| plan.input).chain(plans.last().map(|plan| plan.out))
    }

    fn new(
        block: Geometry,
        tile: usize,
        [first, last]: [bool; 2],
        images: usize,
        amx: Option<Amx>,
    ) -> Self {
        let (conv, out) = (block.conv(), block.out());
        let map = |channels, lane, (h, w), ring| Map { channels, lane, h, w, ring };
        let side = (block.h_in, block.w_in);
        let lane = if first { tile.min(block.c_in) } else { tile };
        let input = map(block.c_in, lane, side, 1);
        let delta = map(block.c_out, tile, conv, 1);
        let (conv, input_grad) = (map(block.c_out, tile, conv, 0), map(block.c_in, tile, side, 0));
        let forward = Convolution::new(&input, conv, block.stride, images).with_amx(amx);
        let turned = Convolution::turned(&delta, input_grad, block.stride, images).with_amx(amx);
        let group = forward.group().max(turned.group());
        Self {
            block,
            input,
            conv,
            out: map(block.c_out, tile, out, usize::from(!last)),
            delta,
            input_grad,
            recompute: first && block.c_in <= RECOMPUTED_CHANNELS,
            forward: forward.with_batch(group),
            turned: turned.with_batch(group),
            group,
            precision: Precision::F32,
            exact_output: true,
        }
    }

    /// Rounds weights to the type of the convolutions.
    pub fn round(&self, body: &dyn InstructionSet, values: &mut [f32]) {
        if let Some(half) = self.precision.half() {
            body.round(half, values);
        }
    }

    /// Rounds other operands or results of convolutions, unless those do it.
    pub fn round_maps(&self, body: &dyn InstructionSet, values: &mut [f32]) {
        if !self.forward.rounds() {
            self.round(body, values);
        }
    }

    /// Rounds rows of the gradient of the convolution's output, which start with the first pixel.
    pub fn round_delta(&self, body: &dyn InstructionSet, delta: &mut [f32], rows: usize) {
        let length = (rows - 1) * self.delta.row() + self.conv.w * self.delta.lane;
        self.round_maps(body, &mut delta[..length]);
    }

    /// The weight for the convolution: `[o tiles, taps, tile]`.
    ///
    /// # Panics
    /// If a length does not fit the block.
    pub fn weight(&self, body: &dyn InstructionSet, parameters: &Parameters<'_>) -> Buffer {
        let filter = self.block.filter();
        let Parameters { weight, bias, gamma, beta } = parameters;
        assert_eq!(weight.len(), filter.weights(), "the weight of {:?}", self.block);
        let vectors = [bias, gamma, beta].map(|vector| vector.len());
        assert_eq!(vectors, [self.block.c_out; 3], "the parameters of {:?}", self.block);
        let mut packed = filter.pack(body, parameters.weight, &self.forward.taps);
        self.round(body, &mut packed);
        packed
    }

    /// Parameters that the derivatives of the block read.
    ///
    /// # Panics
    /// Where [`weight`](Self::weight) does.
    pub fn saved_parameters(
        &self,
        body: &dyn InstructionSet,
        parameters: &Parameters<'_>,
    ) -> SavedParameters {
        let [gamma, beta] = [parameters.gamma, parameters.beta].map(<[f32]>::to_vec);
        SavedParameters { weight: self.weight(body, parameters), gamma, beta }
    }

    /// The weight as [`turned`](Self::turned) takes it, from what [`weight`](Self::weight) returned.
    pub fn turned_weight(&self, body: &dyn InstructionSet, packed: &[f32]) -> CowBuffer<'static> {
        let taps = [&*self.forward.taps, &self.turned.taps];
        self.turned.prepare(body, self.block.filter().turn(body, packed, taps))
    }

    /// The deviation that the sums of batch-norm's gradient are read off.
    pub fn deviation(&self, parameters: &SavedParameters) -> Deviation {
        match self.exact_output {
            true => Deviation::readable(parameters),
            false => Deviation::Convolution,
        }
    }

    /// Channels, padded to whole tiles.
    pub fn padded(&self) -> usize {
        self.conv.tiles() * self.conv.lane
    }

    /// Rows of the convolution's output, a strip at a time; only the last may be odd.
    pub fn strips(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        strips(self.conv.h, self.conv.w)
    }

    /// Every strip of every tile of the convolution's output.
    pub fn pieces(&self) -> impl Iterator<Item = (usize, Range<usize>)> + use<'_> {
        (0..self.conv.tiles()).flat_map(|tile| self.strips().map(move |rows| (tile, rows)))
    }

    /// Length of the longest strip.
    pub fn strip_len(&self) -> usize {
        self.strips().next().map_or(0, |rows| rows.len() * self.conv.row())
    }

    /// Rows of one tile of the convolution's output, computed into `scratch` unless `y` stores it.
    pub fn strip<'a>(
        &self,
        body: &dyn InstructionSet,
        (weight, tile): (&[f32], usize),
        (input, y): (&[f32], &'a [f32]),
        rows: Range<usize>,
        scratch: &'a mut [f32],
    ) -> &'a [f32] {
        let row = self.conv.row();
        if self.recompute {
            let scratch = &mut scratch[..rows.len() * row];
            self.forward.rows(body, &[Term { weight, input }], tile, rows, scratch);
            self.round_maps(body, scratch);
            scratch
        } else {
            let start = self.conv.start(tile, rows.start);
            &y[start..start + rows.len() * row]
        }
    }

    /// Room for the gradients of the convolutions of so many images; only the rings are written.
    pub fn deltas(&self, images: usize) -> Buffer {
        let mut deltas = Buffer::stale(images * self.delta.image());
        self.delta.clear_ring(&mut deltas);
        deltas
    }

    /// Channels of a tile of the convolution's output.
    pub fn channels(&self, tile: usize) -> Range<usize> {
        tile * self.conv.lane..(tile + 1) * self.conv.lane
    }

    /// A strip of `tile` with the affine map that normalises it.
    pub fn affine<'a>(&self, tile: usize, y: &'a [f32], norm: &'a Norm) -> Strip<'a> {
        let [scale, shift] = [&norm.scale, &norm.shift].map(|all| &all[self.channels(tile)]);
        Strip { y, w: self.conv.w, pool: self.block.pool, scale, shift }
    }

    /// The part of a tile of the block's output gradient that `rows` of its convolution take.
    pub fn grad_rows<'a>(&self, tile: usize, rows: &Range<usize>, grad: &'a [f32]) -> &'a [f32] {
        let (first, count) = self.out_rows(rows);
        let row = self.out.w * self.out.lane;
        let start = (tile * self.out.h + first) * row;
        &grad[start..start + count * row]
    }

    /// First row and number of rows of the block's output that `rows` of the convolution give.
    pub fn out_rows(&self, rows: &Range<usize>) -> (usize, usize) {
        let pool = if self.block.pool { 2 } else { 1 };
        (rows.start / pool, rows.len() / pool)
    }
}
