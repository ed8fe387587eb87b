//! The kernel: tick by tick, layer by layer.

use cubecl::prelude::*;

use super::learn::learn;
use super::output::{aggregate_input, compute_output, write_output};
use super::plan::{Call, Layer, Plan};
use super::walk::{column_sums, walk};

/// What a parent tells the layer below for the ticks to come.
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
    let apart = call.sequences * parent.inputs;
    let mut at = UNIT_POS as usize;
    while at < apart {
        let mut sum = 0.0f32;
        for segment in 0..segments {
            sum += workspace[call.sums + segment * apart + at];
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
                        Some(below) => memory[layers.index(below).held + item],
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
