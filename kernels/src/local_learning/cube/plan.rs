//! Constants of a kernel, its sizes and places, and the share of each unit of a cube in the
//! columns and rows of a weight.

use cubecl::prelude::*;

use crate::local_learning::{Activation, Aggregate, RuleKind};

impl RuleKind {
    /// True if the rule takes sums over neurons before the weight changes.
    pub fn sums_columns(self) -> bool {
        matches!(self, Self::Subspace | Self::Sanger)
    }
}

/// The settings that are known when the kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    pub kind: RuleKind,
    pub aggregate: Aggregate,
    pub activation: Activation,
    pub learns: bool,
    pub relative: bool,
    pub top_down: bool,
    pub returns_outputs: bool,
    /// True if there is one sequence.
    pub alone: bool,
    pub units: u32,
}

/// The sizes of a layer and the places of its memory.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Layer {
    pub neurons: usize,
    pub inputs: usize,
    /// Length of an output below.
    pub below: usize,
    pub period: usize,
    pub period_below: usize,
    pub ratio: usize,
    /// Firings of these ticks, and before them.
    pub firings: usize,
    pub before: usize,
    pub numbers: usize,
    pub seen: usize,
    pub output: usize,
    pub gain: usize,
    pub of_inputs: usize,
    pub of_neurons: usize,
}

/// Numbers of a whole launch.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Call {
    /// The first tick of the inputs.
    pub start: usize,
    /// Ticks of the inputs, of which these are done: from `first` on, as far as `last`.
    pub ticks: usize,
    pub first: usize,
    pub last: usize,
    pub sequences: usize,
    pub rate: f32,
    pub decay: f32,
    pub tau: f32,
    pub power_tau: f32,
    pub top_down: f32,
    /// Places of the workspace: what is left of rows, right and left factors of the change, and sums.
    pub retention: usize,
    pub pre: usize,
    pub post: usize,
    pub sums: usize,
}

/// The columns and rows of a unit, in vectors.
#[derive(CubeType, Clone, Copy)]
pub struct Walk {
    pub vectors: usize,
    /// Units side by side, and the first column.
    pub width: usize,
    pub column: usize,
    /// The number of segments, and the rows of this one.
    pub segments: usize,
    pub segment: usize,
    pub row: usize,
    pub end: usize,
}

#[cube]
pub fn walk<N: Size>(layer: &Layer, #[comptime] units: u32) -> Walk {
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
pub fn vector<N: Size>(numbers: &Array<f32>, from: usize) -> Vector<f32, N> {
    let mut values = Vector::<f32, N>::new(0.0f32);
    #[unroll]
    for lane in 0..N::value() {
        values[lane] = numbers[from + lane];
    }
    values
}

/// Writes a vector to numbers from `to` on.
#[cube]
pub fn put<N: Size>(numbers: &mut Array<f32>, to: usize, value: Vector<f32, N>) {
    #[unroll]
    for lane in 0..N::value() {
        numbers[to + lane] = value[lane];
    }
}

/// Sums of outputs times rows of the weight, of each segment of rows.
#[cube]
pub fn column_sums<N: Size>(
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
            let outputs = layer.output + sequence * layer.neurons;
            let mut sum = Vector::<f32, N>::new(0.0f32);
            for row in walk.row..walk.end {
                sum += weight[row * walk.vectors + column] * Vector::new(memory[outputs + row]);
            }
            let of = walk.segment * call.sequences + sequence;
            put::<N>(workspace, call.sums + of * layer.inputs + column * N::value(), sum);
        }
        column += walk.width;
    }
    sync_storage();
}
