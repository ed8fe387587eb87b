//! The kernel: tick by tick, layer by layer.

use cubecl::prelude::*;

use super::learn::learn;
use super::plan::{Call, Layer, Plan, column_sums, walk};
use crate::local_learning::{Activation, Aggregate};

/// Units that add up a row, and read 128 bytes side by side.
pub const LANES: usize = 8;

/// Takes a value of an output below into the window, where its first place is `to`.
#[cube]
fn aggregate_input(
    value: f32,
    memory: &mut Array<f32>,
    to: usize,
    layer: &Layer,
    tick: usize,
    #[comptime] aggregate: Aggregate,
) {
    // Of the first firing the window is filled with the first output.
    let mut slot = layer.ratio - 1;
    if tick > 0 {
        slot = (tick / layer.period_below - 1) % layer.ratio;
    }
    if comptime!(aggregate == Aggregate::Last) {
        memory[to] = value;
    } else if comptime!(aggregate == Aggregate::Mean) {
        if tick == 0 || slot == 0 {
            memory[to] = value;
        } else if slot == layer.ratio - 1 {
            memory[to] = (memory[to] + value) / f32::cast_from(layer.ratio);
        } else {
            memory[to] = memory[to] + value;
        }
    } else if tick == 0 {
        for slot in 0..layer.ratio {
            memory[to + slot * layer.below] = value;
        }
    } else {
        memory[to + slot * layer.below] = value;
    }
}

/// The output of the layer, for its input.
#[cube]
fn compute_output<N: Size>(
    weight: &Array<Vector<f32, N>>,
    memory: &mut Array<f32>,
    shared: &mut SharedMemory<f32>,
    layer: &Layer,
    sequences: usize,
    #[comptime] plan: Plan,
) {
    let unit = UNIT_POS as usize;
    let lane = unit % LANES;
    let vectors = layer.inputs / N::value();
    let items = sequences * layer.neurons;
    let mut first = 0usize;
    while first < items {
        let item = first + unit / LANES;
        let mut sum = 0.0f32;
        if item < items {
            // All sequences meet a row at about the same time.
            let row = item / sequences * vectors;
            let seen = layer.seen + item % sequences * layer.inputs;
            let mut at = lane;
            while at < vectors {
                let w = weight[row + at];
                #[unroll]
                for place in 0..N::value() {
                    sum += w[place] * memory[seen + at * N::value() + place];
                }
                at += LANES;
            }
        }
        shared[unit] = sum;
        sync_cube();
        if lane == 0 && item < items {
            let mut total = 0.0f32;
            #[unroll]
            for lane in 0..LANES {
                total += shared[unit + lane];
            }
            let mut output = total;
            if comptime!(plan.activation == Activation::Tanh) {
                output = total.tanh();
            } else if comptime!(plan.activation == Activation::Relu) {
                if total <= 0.0f32 {
                    output = 0.0f32;
                }
            }
            let place = item % sequences * layer.neurons + item / sequences;
            if comptime!(plan.top_down) {
                output *= memory[layer.gain + place];
            }
            memory[layer.output + place] = output;
        }
        sync_cube();
        first += comptime!(plan.units as usize / LANES);
    }
}

/// Copies what the layer holds to the outputs of its firings.
#[cube]
fn write_output(
    output: &mut Array<f32>,
    memory: &Array<f32>,
    layer: &Layer,
    tick: usize,
    sequences: usize,
    #[comptime] units: u32,
) {
    let firing = tick / layer.period - layer.before;
    let mut item = UNIT_POS as usize;
    while item < sequences * layer.neurons {
        let sequence = item / layer.neurons;
        let row = sequence * layer.firings + firing;
        output[row * layer.neurons + item % layer.neurons] = memory[layer.output + item];
        item += comptime!(units as usize);
    }
}

/// The gain of a parent on the layer below, for the ticks to come.
#[cube]
fn feed_back<N: Size>(
    weight: &Array<Vector<f32, N>>,
    memory: &mut Array<f32>,
    workspace: &mut Array<f32>,
    parent: &Layer,
    gain: usize,
    call: &Call,
    #[comptime] units: u32,
) {
    column_sums::<N>(weight, memory, workspace, parent, call, units);
    let segments = walk::<N>(parent, units).segments;
    let stride = call.sequences * parent.inputs;
    let mut at = UNIT_POS as usize;
    while at < stride {
        let mut sum = 0.0f32;
        for segment in 0..segments {
            sum += workspace[call.sums + segment * stride + at];
        }
        memory[gain + at] = sum.tanh() * call.top_down + 1.0f32;
        at += comptime!(units as usize);
    }
    sync_storage();
}

#[cube(launch_unchecked)]
pub fn ticks_kernel<N: Size>(
    xs: &Array<f32>,
    weights: &mut Sequence<Array<Vector<f32, N>>>,
    outputs: &mut Sequence<Array<f32>>,
    memory: &mut Array<f32>,
    workspace: &mut Array<f32>,
    layers: &Sequence<Layer>,
    call: &Call,
    #[comptime] plan: Plan,
) {
    let mut shared = SharedMemory::<f32>::new(comptime!(plan.units as usize));
    let count = comptime!(weights.len());
    for moment in call.first..call.last {
        let tick = call.start + moment;
        #[unroll]
        for index in 0..count {
            let layer = layers.index(index);
            // The first layer that does not fire takes in what came; nothing comes to those above.
            if tick % layer.period_below == 0 {
                let mut item = UNIT_POS as usize;
                while item < call.sequences * layer.below {
                    let sequence = item / layer.below;
                    let place = item % layer.below;
                    let value = match comptime!(index.checked_sub(1)) {
                        None => xs[(sequence * call.ticks + moment) * layer.below + place],
                        Some(below) => memory[layers.index(below).output + item],
                    };
                    let to = layer.seen + sequence * layer.inputs + place;
                    aggregate_input(value, memory, to, layer, tick, plan.aggregate);
                    item += comptime!(plan.units as usize);
                }
                sync_storage();
                if tick % layer.period == 0 {
                    let weight = weights.index_mut(index);
                    compute_output::<N>(weight, memory, &mut shared, layer, call.sequences, plan);
                    sync_storage();
                    if comptime!(plan.returns_outputs) {
                        let output = outputs.index_mut(index);
                        write_output(output, memory, layer, tick, call.sequences, plan.units);
                    }
                    if comptime!(plan.learns) {
                        learn::<N>(weight, memory, workspace, &mut shared, layer, call, plan);
                    }
                    if comptime!(plan.top_down && index > 0) {
                        let gain = layers.index(comptime!(index - 1)).gain;
                        feed_back::<N>(weight, memory, workspace, layer, gain, call, plan.units);
                    }
                }
            }
        }
    }
}
