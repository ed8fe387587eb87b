//! All ticks on a device: one launch of one cube, which goes from tick to tick and layer to layer.
//!
//! No other cube could see what one wrote before a launch ends, and a launch costs more than a tick of
//! small layers. Weights stay where they lie, in the cache that all multiprocessors share. Phases of a
//! firing end with a barrier of the cube: sums of the rows, what the rule makes of inputs and outputs,
//! and the change. All but the first have a unit for each of some columns in each of some segments of
//! rows, so that neighbours read neighbours.

use burn::tensor::DType;
use burn::tensor::ops::FloatTensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::client::ComputeClient;
use cubecl::prelude::*;

use super::memory::Places;
use super::{Activation, Aggregate, BcmForm, LocalBody, LocalLearning, LocalRule, LocalTensors};
use crate::cube::{arrays, common_width, cube_sum_in, empty, most_tensors, owned};

/// Units that add up a row, and read 128 bytes side by side.
const LANES: usize = 8;

/// Units of a cube at most. More would leave a unit too few registers.
const MOST_UNITS: u32 = 1024;

/// Elements of weights that a launch meets at most, once for each sequence: some tenths of a second.
/// Systems end launches that take seconds.
const MOST_WORK: usize = 1 << 30;

/// What is as good as zero, and no inputs are multiplied by one over it.
const LEAST_POWER: f32 = f32::MIN_POSITIVE;

/// Least threshold that [`BcmForm::Law`] divides by.
const LEAST_DIVISOR: f32 = 1e-3;

/// Which rule it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Hebb,
    Covariance,
    Oja,
    Subspace,
    Sanger,
    Bcm(BcmForm),
}

impl Kind {
    fn of(rule: LocalRule) -> Self {
        match rule {
            LocalRule::Hebb { .. } => Self::Hebb,
            LocalRule::Covariance { .. } => Self::Covariance,
            LocalRule::Oja => Self::Oja,
            LocalRule::Subspace => Self::Subspace,
            LocalRule::Sanger => Self::Sanger,
            LocalRule::Bcm { form, .. } => Self::Bcm(form),
        }
    }

    /// Whether it takes sums over neurons before the weight changes.
    fn sums_columns(self) -> bool {
        matches!(self, Self::Subspace | Self::Sanger)
    }
}

/// What is known when the kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Plan {
    kind: Kind,
    aggregate: Aggregate,
    activation: Activation,
    learns: bool,
    relative: bool,
    top_down: bool,
    told: bool,
    /// Whether there is one sequence.
    alone: bool,
    units: u32,
}

/// The sizes of a layer and the places of its memory.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Layer {
    neurons: usize,
    inputs: usize,
    /// Length of an output below.
    below: usize,
    period: usize,
    period_below: usize,
    ratio: usize,
    /// Firings of these ticks, and before them.
    firings: usize,
    before: usize,
    numbers: usize,
    seen: usize,
    held: usize,
    gain: usize,
    of_inputs: usize,
    of_neurons: usize,
}

/// Numbers of a whole launch.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Call {
    /// The first tick of the inputs.
    start: usize,
    /// Ticks of the inputs, of which these are done: from `first` on, as far as `last`.
    ticks: usize,
    first: usize,
    last: usize,
    sequences: usize,
    rate: f32,
    decay: f32,
    tau: f32,
    power_tau: f32,
    top_down: f32,
    /// Places of the workspace: what is left of rows, right and left factors of the change, and sums.
    kept: usize,
    pre: usize,
    post: usize,
    sums: usize,
}

/// The columns and rows of a unit, in vectors.
#[derive(CubeType, Clone, Copy)]
struct Walk {
    vectors: usize,
    /// Units side by side, and the first column.
    width: usize,
    column: usize,
    /// Of how many segments, which rows.
    segments: usize,
    segment: usize,
    row: usize,
    end: usize,
}

#[cube]
fn walk<N: Size>(layer: &Layer, #[comptime] units: u32) -> Walk {
    let units = comptime!(units as usize);
    let unit = UNIT_POS as usize;
    let vectors = layer.inputs / N::value();
    let width = min(vectors, units);
    let segments = min(units / width, layer.neurons);
    let rows = layer.neurons.div_ceil(segments);
    let segment = unit / width;
    let row = min(segment * rows, layer.neurons);
    let mut end = min(row + rows, layer.neurons);
    let mut column = unit % width;
    if segment >= segments {
        // Nothing is left for it.
        column = vectors;
        end = row;
    }
    Walk { vectors, width, column, segments, segment, row, end }
}

/// The vector at `from` of numbers.
#[cube]
fn vector<N: Size>(numbers: &Array<f32>, from: usize) -> Vector<f32, N> {
    let mut found = Vector::<f32, N>::new(0.0f32);
    #[unroll]
    for lane in 0..N::value() {
        found[lane] = numbers[from + lane];
    }
    found
}

/// Writes a vector to numbers from `to` on.
#[cube]
fn put<N: Size>(numbers: &mut Array<f32>, to: usize, value: Vector<f32, N>) {
    #[unroll]
    for lane in 0..N::value() {
        numbers[to + lane] = value[lane];
    }
}

/// Takes a value of an output below into the window, where its first place is `to`.
#[cube]
fn take_in(
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

/// What the layer gives for what it sees.
#[cube]
fn give<N: Size>(
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
            memory[layer.held + place] = output;
        }
        sync_cube();
        first += comptime!(plan.units as usize / LANES);
    }
}

/// Copies what the layer holds to the outputs of its firings.
#[cube]
fn tell(
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
        output[row * layer.neurons + item % layer.neurons] = memory[layer.held + item];
        item += comptime!(units as usize);
    }
}

/// What the rate is multiplied by: one over the power of what is seen, or one.
#[cube]
fn factor(
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

/// Sums of outputs times rows of the weight, of each segment of rows.
#[cube]
fn column_sums<N: Size>(
    weight: &Array<Vector<f32, N>>,
    memory: &Array<f32>,
    workspace: &mut Array<f32>,
    layer: &Layer,
    call: &Call,
    #[comptime] units: u32,
) {
    let walk = walk::<N>(layer, units);
    let mut column = walk.column;
    while column < walk.vectors {
        for sequence in 0..call.sequences {
            let held = layer.held + sequence * layer.neurons;
            let mut sum = Vector::<f32, N>::new(0.0f32);
            for row in walk.row..walk.end {
                sum += weight[row * walk.vectors + column] * Vector::new(memory[held + row]);
            }
            let of = walk.segment * call.sequences + sequence;
            put::<N>(workspace, call.sums + of * layer.inputs + column * N::value(), sum);
        }
        column += walk.width;
    }
    sync_storage();
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
            let y = memory[layer.held + sequence * layer.neurons + neuron];
            square += y * y;
            mean += y;
        }
        square /= count;
        mean /= count;
        let mut before = memory[layer.of_neurons + neuron];
        if comptime!(plan.kind == Kind::Covariance) {
            if !known {
                before = mean;
            }
        }
        for sequence in 0..call.sequences {
            let place = sequence * layer.neurons + neuron;
            let y = memory[layer.held + place];
            let mut left = y;
            if comptime!(plan.kind == Kind::Covariance) {
                left = y - before;
            } else if comptime!(plan.kind == Kind::Bcm(BcmForm::IntratorCooper)) {
                left = (y - before) * y;
            } else if comptime!(plan.kind == Kind::Bcm(BcmForm::Law)) {
                left = (y - before) * y / max(before, LEAST_DIVISOR);
            }
            workspace[call.post + place] = left / count * rate;
        }
        // A steady decay has nothing to do with the inputs' power.
        let mut kept = 1.0f32 - call.rate * call.decay;
        if comptime!(plan.kind == Kind::Oja) {
            kept = 1.0f32 - rate * square;
        }
        workspace[call.kept + neuron] = kept;
        if comptime!(matches!(plan.kind, Kind::Bcm(_))) {
            memory[layer.of_neurons + neuron] = before + (square - before) / call.tau;
        } else if comptime!(plan.kind == Kind::Covariance) {
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
    let apart = call.sequences * layer.inputs;
    let mut input = UNIT_POS as usize;
    while input < layer.inputs {
        let mut before = 0.0f32;
        if comptime!(plan.kind == Kind::Covariance) {
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
                    let at = call.sums + segment * apart + place;
                    let of = workspace[at];
                    if comptime!(plan.kind == Kind::Sanger) {
                        workspace[at] = sum;
                    }
                    sum += of;
                }
                if comptime!(plan.kind == Kind::Subspace) {
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
fn change<N: Size>(
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
            if comptime!(plan.kind == Kind::Sanger) {
                before = vector::<N>(workspace, above);
            }
        }
        for row in walk.row..walk.end {
            let at = row * walk.vectors + column;
            let old = weight[at];
            let mut new = old * Vector::new(workspace[call.kept + row]);
            for sequence in 0..sequences {
                let neuron = sequence * layer.neurons + row;
                if comptime!(!plan.alone) {
                    right = vector::<N>(workspace, call.pre + sequence * layer.inputs + place);
                }
                let mut unexplained = right;
                if comptime!(plan.kind == Kind::Sanger) {
                    // What this neuron and those above it explain of the input.
                    let above = above + sequence * layer.inputs;
                    if comptime!(!plan.alone) {
                        before = vector::<N>(workspace, above);
                    }
                    before += old * Vector::new(memory[layer.held + neuron]);
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
fn learn<N: Size>(
    weight: &mut Array<Vector<f32, N>>,
    memory: &mut Array<f32>,
    workspace: &mut Array<f32>,
    shared: &mut SharedMemory<f32>,
    layer: &Layer,
    call: &Call,
    #[comptime] plan: Plan,
) {
    let scale = factor(memory, shared, layer, call, plan);
    let known = memory[layer.numbers + 2] != 0.0f32;
    if comptime!(plan.kind.sums_columns()) {
        column_sums::<N>(weight, memory, workspace, layer, call, plan.units);
    }
    let segments = walk::<N>(layer, plan.units).segments;
    prepare_neurons(memory, workspace, layer, call, scale, known, plan);
    prepare_inputs(memory, workspace, layer, call, segments, known, plan);
    sync_storage();
    if comptime!(plan.kind == Kind::Covariance) {
        if UNIT_POS == 0 {
            memory[layer.numbers + 2] = 1.0f32;
        }
    }
    change::<N>(weight, memory, workspace, layer, call, plan);
}

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
fn ticks_kernel<N: Size>(
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
                    take_in(value, memory, to, layer, tick, plan.aggregate);
                    item += comptime!(plan.units as usize);
                }
                sync_storage();
                if tick % layer.period == 0 {
                    let weight = weights.index_mut(index);
                    give::<N>(weight, memory, &mut shared, layer, call.sequences, plan);
                    sync_storage();
                    if comptime!(plan.told) {
                        let output = outputs.index_mut(index);
                        tell(output, memory, layer, tick, call.sequences, plan.units);
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

/// The body of an accelerator.
pub fn body<R, F, I, BT>() -> LocalBody<CubeBackend<R, F, I, BT>>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    LocalBody {
        // A layer binds its weight and its outputs; beside them inputs, memory and workspace.
        most_layers: |device| most_tensors(&R::client(device), 2, 3),
        run: run::<R, F, I, BT>,
    }
}

fn run<R, F, I, BT>(
    learning: &LocalLearning,
    start: usize,
    of: LocalTensors<FloatTensor<CubeBackend<R, F, I, BT>>>,
) -> LocalTensors<FloatTensor<CubeBackend<R, F, I, BT>>>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    let LocalTensors { values, weights, memory } = of;
    let xs = into_contiguous(values.into_iter().next().expect("the inputs"));
    let ticks = xs.meta.shape()[1];
    let weights: Vec<_> = weights.into_iter().map(owned).collect();
    let memory = owned(memory);
    let wanted = learning.outputs(start, ticks);
    let mut outputs: Vec<_> = wanted.iter().map(|&shape| empty(&xs, shape, DType::F32)).collect();
    if learning.told {
        // A layer that does not fire in these ticks has an output that nothing is written to.
        outputs.resize_with(weights.len(), || empty(&xs, [1], DType::F32));
    }
    let work = Work::new(&xs.client, learning);
    let workspace = empty(&xs, [work.workspace], DType::F32);
    let mut first = 0;
    while first < ticks {
        let last = ticks.min(first + work.ticks);
        let on = OnDevice { xs: &xs, weights: &weights, outputs: &outputs, memory: &memory };
        launch(learning, [start, ticks, first, last], &on, &workspace, &work);
        first = last;
    }
    outputs.truncate(wanted.len());
    LocalTensors { values: outputs, weights, memory }
}

/// What a launch takes.
struct Work {
    units: u32,
    /// Of a vector.
    width: usize,
    /// Elements of the workspace, and its places as `Call` has them.
    workspace: usize,
    places: [usize; 4],
    /// Ticks of a launch at most.
    ticks: usize,
}

impl Work {
    fn new<R: CubeRuntime>(client: &ComputeClient<R>, learning: &LocalLearning) -> Self {
        let sequences = learning.sequences;
        let largest = |of: fn(&super::LocalLayer) -> usize| {
            learning.layers.iter().map(of).max().expect("at least one layer")
        };
        let [inputs, neurons] = [largest(|layer| layer.inputs), largest(|layer| layer.neurons)];
        let lengths: Vec<_> = learning.layers.iter().map(|layer| layer.inputs).collect();
        let width = common_width(client, &lengths, size_of::<f32>());
        let units = units(client, largest(|layer| layer.inputs * layer.neurons) / width);
        let sums = sequences * inputs.max(units as usize * width);
        let pre = neurons;
        let post = pre + sequences * inputs;
        let before = post + sequences * neurons;
        let ticks = (MOST_WORK / learning.work()).max(1);
        Self { units, width, workspace: before + sums, places: [0, pre, post, before], ticks }
    }
}

/// Units of a cube for so many vectors of a weight: a power of two, with some vectors for each.
fn units<R: CubeRuntime>(client: &ComputeClient<R>, vectors: usize) -> u32 {
    let most = client.properties().hardware.max_units_per_cube.clamp(LANES as u32, MOST_UNITS);
    let most = 1 << most.ilog2();
    u32::try_from(vectors.div_ceil(8)).unwrap_or(most).next_power_of_two().clamp(32.min(most), most)
}

/// The tensors of a launch but its workspace.
struct OnDevice<'a, R: CubeRuntime> {
    xs: &'a CubeTensor<R>,
    weights: &'a [CubeTensor<R>],
    outputs: &'a [CubeTensor<R>],
    memory: &'a CubeTensor<R>,
}

fn launch<R: CubeRuntime>(
    learning: &LocalLearning,
    [start, ticks, first, last]: [usize; 4],
    on: &OnDevice<'_, R>,
    workspace: &CubeTensor<R>,
    work: &Work,
) {
    let plan = Plan {
        kind: Kind::of(learning.rule),
        aggregate: learning.aggregate,
        activation: learning.activation,
        learns: learning.rate != 0.0,
        relative: learning.relative.is_some(),
        top_down: learning.top_down != 0.0,
        told: learning.told,
        alone: learning.sequences == 1,
        units: work.units,
    };
    let [kept, pre, post, sums] = work.places;
    let call = CallLaunch::new(
        start,
        ticks,
        first,
        last,
        learning.sequences,
        learning.rate as f32,
        learning.rule.decay() as f32,
        learning.rule.tau() as f32,
        learning.relative.unwrap_or(1.0) as f32,
        learning.top_down as f32,
        kept,
        pre,
        post,
        sums,
    );
    let places = Places::all(learning);
    let layers = places.iter().enumerate().map(|(index, places)| {
        let layer = learning.layers[index];
        LayerLaunch::new(
            layer.neurons,
            layer.inputs,
            layer.inputs / learning.aggregate.length(1, learning.ratio(index)),
            layer.period,
            learning.period_below(index),
            learning.ratio(index),
            learning.firings(index, start, ticks),
            start.div_ceil(layer.period),
            places.numbers,
            places.seen,
            places.held,
            places.gain,
            places.of_inputs,
            places.of_neurons,
        )
    });
    let client = &on.xs.client;
    // SAFETY: weights and memory have the places that `Layer` tells of, which are of the same settings as
    // the tensors; outputs have a row for each firing of each sequence, and the workspace what
    // `Work` counts. Units stop at the sizes of a layer. Nothing else holds the memory that is written to.
    unsafe {
        ticks_kernel::launch_unchecked::<R>(
            client,
            CubeCount::Static(1, 1, 1),
            CubeDim::new_1d(work.units),
            work.width,
            on.xs.clone().into_array_arg(),
            arrays(on.weights.iter()),
            arrays(on.outputs.iter()),
            on.memory.clone().into_array_arg(),
            workspace.clone().into_array_arg(),
            layers.collect(),
            call,
            plan,
        );
    }
}
