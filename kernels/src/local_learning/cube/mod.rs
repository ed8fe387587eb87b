//! All ticks on a device: one launch of one cube, which goes from tick to tick and layer to layer.
//!
//! No other cube could see what one wrote before a launch ends, and a launch costs more than a tick of
//! small layers. Weights stay where they lie, in the cache that all multiprocessors share. Phases of a
//! firing end with a barrier of the cube: sums of the rows, what the rule makes of inputs and outputs,
//! and the change. All but the first have a unit for each of some columns in each of some segments of
//! rows, so that neighbours read neighbours.

mod kernel;
mod learn;
mod plan;

use burn::tensor::DType;
use burn::tensor::ops::FloatTensor;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::client::ComputeClient;

use self::kernel::{LANES, ticks_kernel};
use self::plan::{CallLaunch, LayerLaunch, Plan};
use super::memory::Offsets;
use super::{LocalLearning, LocalTensors, MostLayers};
use crate::cube::{
    array, arrays, common_width, empty, grid, into_contiguous, launch, most_tensors, owned,
};
use crate::registry::Runs;

/// Units of a cube at most. More would leave a unit too few registers.
const MOST_UNITS: u32 = 1024;

/// Elements of weights that a launch meets at most, once for each sequence: some tenths of a second.
/// Systems end launches that take seconds.
const MOST_WORK: usize = 1 << 30;

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> Runs<MostLayers>
    for CubeBackend<R, F, I, BT>
{
    fn run(device: Self::Device, _: &MostLayers) -> usize {
        // A layer binds its weight and its outputs; beside them inputs, memory and workspace.
        most_tensors(&R::client(&device), 2, 3)
    }
}

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> Runs<LocalLearning>
    for CubeBackend<R, F, I, BT>
{
    fn run(
        (start, tensors): (usize, LocalTensors<FloatTensor<Self>>),
        learning: &LocalLearning,
    ) -> LocalTensors<FloatTensor<Self>> {
        let LocalTensors { values, weights, memory } = tensors;
        let xs = into_contiguous(values.into_iter().next().expect("the inputs"));
        let ticks = xs.meta.shape()[1];
        let weights: Vec<_> = weights.into_iter().map(owned).collect();
        let memory = owned(memory);
        let shapes = learning.outputs(start, ticks);
        let mut outputs: Vec<_> =
            shapes.iter().map(|&shape| empty(&xs, shape, DType::F32)).collect();
        if learning.returns_outputs {
            // A layer that does not fire in these ticks has an output that nothing is written to.
            outputs.resize_with(weights.len(), || empty(&xs, [1], DType::F32));
        }
        let work = Work::new(&xs.client, learning);
        let workspace = empty(&xs, [work.workspace], DType::F32);
        let mut results = LocalTensors { values: outputs, weights, memory };
        let mut first = 0;
        while first < ticks {
            let last = ticks.min(first + work.ticks);
            launch(learning, [start, ticks, first, last], &xs, &results, &workspace, &work);
            first = last;
        }
        results.values.truncate(shapes.len());
        results
    }
}

/// The units, memory and ticks of a launch.
struct Work {
    units: u32,
    /// Elements of a vector.
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

/// Some ticks, with what they give and change.
fn launch<R: CubeRuntime>(
    learning: &LocalLearning,
    [start, ticks, first, last]: [usize; 4],
    xs: &CubeTensor<R>,
    on: &LocalTensors<CubeTensor<R>>,
    workspace: &CubeTensor<R>,
    work: &Work,
) {
    let plan = Plan {
        kind: learning.rule.kind,
        aggregate: learning.aggregate,
        activation: learning.activation,
        learns: learning.rate != 0.0,
        relative: learning.relative.is_some(),
        top_down: learning.top_down != 0.0,
        returns_outputs: learning.returns_outputs,
        alone: learning.sequences == 1,
        units: work.units,
    };
    let [retention, pre, post, sums] = work.places;
    let call = CallLaunch::new(
        start,
        ticks,
        first,
        last,
        learning.sequences,
        learning.rate as f32,
        learning.rule.decay as f32,
        learning.rule.tau as f32,
        learning.relative.unwrap_or(1.0) as f32,
        learning.top_down as f32,
        retention,
        pre,
        post,
        sums,
    );
    let places = Offsets::all(learning);
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
            places.output,
            places.gain,
            places.of_inputs,
            places.of_neurons,
        )
    });
    let client = &xs.client;
    // SAFETY: weights and memory have the places that `Layer` tells of, which are of the same settings as
    // the tensors; outputs have a row for each firing of each sequence, and the workspace what
    // `Work` counts. Units stop at the sizes of a layer. Nothing else holds the memory that is written to.
    unsafe {
        launch!(ticks_kernel, grid(client, [1, 1, 1], work.units), work.width;
            xs;
            arrays(&on.weights), arrays(&on.values), array(&on.memory),
            array(workspace), layers.collect(), call, plan);
    }
}
