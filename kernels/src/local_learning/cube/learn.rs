//! The update of a layer's weight by its rule.

use cubecl::prelude::*;

use super::plan::{Call, Layer, Plan, column_sums, put, vector, walk};
use crate::cube::cube_sum_in;
use crate::local_learning::{BcmForm, RuleKind};

/// The power up to which inputs count as zeros, and do not change the rate.
const LEAST_POWER: f32 = f32::MIN_POSITIVE;

/// Least threshold that [`BcmForm::Law`] divides by.
const LEAST_DIVISOR: f32 = 1e-3;

/// Factor of the rate: one over the power of the inputs, or one.
#[cube]
fn rate_factor(
    memory: &mut Array<f32>,
    shared: &mut SharedMemory<f32>,
    layer: &Layer,
    call: &Call,
    #[comptime] plan: Plan,
) -> f32 {
    let unit = UNIT_POS as usize;
    let mut sum = 0.0f32;
    let mut at = unit;
    while at < call.sequences * layer.inputs {
        let value = memory[layer.seen + at];
        sum += value * value;
        at += comptime!(plan.units as usize);
    }
    let now = cube_sum_in(sum, shared, plan.units) / f32::cast_from(call.sequences);
    let mut scale = 1.0f32;
    if comptime!(plan.relative) {
        let before = memory[layer.numbers];
        let mut mean = now;
        if before >= 0.0f32 || before.is_nan() {
            mean = before + (now - before) / call.power_tau;
        }
        let mut power = mean;
        if mean < now {
            power = now;
        }
        scale = 1.0f32 / power;
        if power <= LEAST_POWER {
            scale = 0.0f32;
        }
        sync_storage();
        if unit == 0 {
            memory[layer.numbers] = mean;
        }
    } else {
        if unit == 0 && memory[layer.numbers + 1] == 0.0f32 && now > 0.0f32 {
            memory[layer.numbers + 1] = now;
        }
    }
    scale
}

/// Left factor of the change and what is left of each row, both with the rate in them.
#[cube]
fn prepare_neurons(
    memory: &mut Array<f32>,
    workspace: &mut Array<f32>,
    layer: &Layer,
    call: &Call,
    scale: f32,
    known: bool,
    #[comptime] plan: Plan,
) {
    let count = f32::cast_from(call.sequences);
    let rate = call.rate * scale;
    let mut neuron = UNIT_POS as usize;
    while neuron < layer.neurons {
        let mut square = 0.0f32;
        let mut mean = 0.0f32;
        for sequence in 0..call.sequences {
            let y = memory[layer.output + sequence * layer.neurons + neuron];
            square += y * y;
            mean += y;
        }
        square /= count;
        mean /= count;
        let mut before = memory[layer.of_neurons + neuron];
        if comptime!(plan.kind == RuleKind::Covariance) {
            if !known {
                before = mean;
            }
        }
        for sequence in 0..call.sequences {
            let place = sequence * layer.neurons + neuron;
            let y = memory[layer.output + place];
            let mut left = y;
            if comptime!(plan.kind == RuleKind::Covariance) {
                left = y - before;
            } else if comptime!(plan.kind == RuleKind::Bcm(BcmForm::IntratorCooper)) {
                left = (y - before) * y;
            } else if comptime!(plan.kind == RuleKind::Bcm(BcmForm::Law)) {
                left = (y - before) * y / max(before, LEAST_DIVISOR);
            }
            workspace[call.post + place] = left / count * rate;
        }
        // A steady decay has nothing to do with the inputs' power.
        let mut retention = 1.0f32 - call.rate * call.decay;
        if comptime!(plan.kind == RuleKind::Oja) {
            retention = 1.0f32 - rate * square;
        }
        workspace[call.retention + neuron] = retention;
        if comptime!(matches!(plan.kind, RuleKind::Bcm(_))) {
            memory[layer.of_neurons + neuron] = before + (square - before) / call.tau;
        } else if comptime!(plan.kind == RuleKind::Covariance) {
            memory[layer.of_neurons + neuron] = before + (mean - before) / call.tau;
        }
        neuron += comptime!(plan.units as usize);
    }
}

/// Right factor of the change; of Sanger's rule besides, sums of the rows before each segment in place
/// of those of the segment.
#[cube]
fn prepare_inputs(
    memory: &mut Array<f32>,
    workspace: &mut Array<f32>,
    layer: &Layer,
    call: &Call,
    segments: usize,
    known: bool,
    #[comptime] plan: Plan,
) {
    let stride = call.sequences * layer.inputs;
    let mut input = UNIT_POS as usize;
    while input < layer.inputs {
        let mut before = 0.0f32;
        if comptime!(plan.kind == RuleKind::Covariance) {
            let mut mean = 0.0f32;
            for sequence in 0..call.sequences {
                mean += memory[layer.seen + sequence * layer.inputs + input];
            }
            mean /= f32::cast_from(call.sequences);
            before = memory[layer.of_inputs + input];
            if !known {
                before = mean;
            }
            memory[layer.of_inputs + input] = before + (mean - before) / call.tau;
        }
        for sequence in 0..call.sequences {
            let place = sequence * layer.inputs + input;
            let mut right = memory[layer.seen + place] - before;
            if comptime!(plan.kind.sums_columns()) {
                let mut sum = 0.0f32;
                for segment in 0..segments {
                    let at = call.sums + segment * stride + place;
                    let of = workspace[at];
                    if comptime!(plan.kind == RuleKind::Sanger) {
                        workspace[at] = sum;
                    }
                    sum += of;
                }
                if comptime!(plan.kind == RuleKind::Subspace) {
                    right -= sum;
                }
            }
            workspace[call.pre + place] = right;
        }
        input += comptime!(plan.units as usize);
    }
}

/// The weight keeps a share of each row and grows by outer products.
#[cube]
fn update_weight<N: Size>(
    weight: &mut Array<Vector<f32, N>>,
    memory: &Array<f32>,
    workspace: &mut Array<f32>,
    layer: &Layer,
    call: &Call,
    #[comptime] plan: Plan,
) {
    let walk = walk::<N>(layer, plan.units);
    let mut column = walk.column;
    while column < walk.vectors {
        let place = column * N::value();
        let mut sequences = call.sequences;
        let mut right = vector::<N>(workspace, call.pre + place);
        let mut before = Vector::<f32, N>::new(0.0f32);
        let above = call.sums + walk.segment * call.sequences * layer.inputs + place;
        if comptime!(plan.alone) {
            sequences = 1usize;
            if comptime!(plan.kind == RuleKind::Sanger) {
                before = vector::<N>(workspace, above);
            }
        }
        for row in walk.row..walk.end {
            let at = row * walk.vectors + column;
            let old = weight[at];
            let mut new = old * Vector::new(workspace[call.retention + row]);
            for sequence in 0..sequences {
                let neuron = sequence * layer.neurons + row;
                if comptime!(!plan.alone) {
                    right = vector::<N>(workspace, call.pre + sequence * layer.inputs + place);
                }
                let mut unexplained = right;
                if comptime!(plan.kind == RuleKind::Sanger) {
                    // What this neuron and those above it explain of the input.
                    let above = above + sequence * layer.inputs;
                    if comptime!(!plan.alone) {
                        before = vector::<N>(workspace, above);
                    }
                    before += old * Vector::new(memory[layer.output + neuron]);
                    if comptime!(!plan.alone) {
                        put::<N>(workspace, above, before);
                    }
                    unexplained = right - before;
                }
                new += unexplained * Vector::new(workspace[call.post + neuron]);
            }
            weight[at] = new;
        }
        column += walk.width;
    }
    sync_storage();
}

/// The layer learns from what it saw and gave.
#[cube]
pub fn learn<N: Size>(
    weight: &mut Array<Vector<f32, N>>,
    memory: &mut Array<f32>,
    workspace: &mut Array<f32>,
    shared: &mut SharedMemory<f32>,
    layer: &Layer,
    call: &Call,
    #[comptime] plan: Plan,
) {
    let scale = rate_factor(memory, shared, layer, call, plan);
    let known = memory[layer.numbers + 2] != 0.0f32;
    if comptime!(plan.kind.sums_columns()) {
        column_sums::<N>(weight, memory, workspace, layer, call, plan.units);
    }
    let segments = walk::<N>(layer, plan.units).segments;
    prepare_neurons(memory, workspace, layer, call, scale, known, plan);
    prepare_inputs(memory, workspace, layer, call, segments, known, plan);
    sync_storage();
    if comptime!(plan.kind == RuleKind::Covariance) {
        if UNIT_POS == 0 {
            memory[layer.numbers + 2] = 1.0f32;
        }
    }
    update_weight::<N>(weight, memory, workspace, layer, call, plan);
}
