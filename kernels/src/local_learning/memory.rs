//! The memory of layers from tick to tick, in one tensor.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::LocalLearning;

/// Numbers of a layer that come first: the running mean of the power of what it sees, below zero where
/// there is none; the first power but zero that was seen, zero where there was none; and whether
/// `of_inputs` is there.
pub(super) const NUMBERS: usize = 3;

/// The memory of a layer; a part that is not there yet is `None`.
#[derive(Clone, Debug)]
pub struct LayerMemory<B: Backend> {
    /// Running mean of the power of what it sees, `[1]`.
    pub power: Option<Tensor<B, 1>>,
    /// Its window, `[b, inputs]`: the last output below, the sum of those that came, or all
    /// of them from the left.
    pub seen: Option<Tensor<B, 2>>,
    /// Its last output, `[b, neurons]`.
    pub output: Option<Tensor<B, 2>>,
    /// The factor of the next output, `[b, neurons]`.
    pub gain: Option<Tensor<B, 2>>,
    /// The memory of the rule for each input, `[1, inputs]`.
    pub of_inputs: Option<Tensor<B, 2>>,
    /// The memory of the rule for each neuron, `[1, neurons]`.
    pub of_neurons: Option<Tensor<B, 2>>,
}

/// Offsets of a layer's values in the memory of all layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offsets {
    pub numbers: usize,
    pub seen: usize,
    pub output: usize,
    pub gain: usize,
    pub of_inputs: usize,
    pub of_neurons: usize,
    /// Inputs, neurons and sequences.
    pub sizes: [usize; 3],
}

impl Offsets {
    /// The offsets of all layers: first their numbers, side by side, then all else.
    pub fn all(learning: &LocalLearning) -> Vec<Self> {
        let mut free = NUMBERS * learning.layers.len();
        let mut take = |length| {
            free += length;
            free - length
        };
        let sequences = learning.sequences;
        let layer = |(index, layer): (usize, &super::LocalLayer)| Self {
            numbers: NUMBERS * index,
            seen: take(sequences * layer.inputs),
            output: take(sequences * layer.neurons),
            gain: take(sequences * layer.neurons),
            of_inputs: take(layer.inputs),
            of_neurons: take(layer.neurons),
            sizes: [layer.inputs, layer.neurons, sequences],
        };
        learning.layers.iter().enumerate().map(layer).collect()
    }
}

/// The memory of all layers, in one tensor.
#[derive(Clone, Debug)]
pub struct LocalMemory<B: Backend> {
    pub(super) numbers: Tensor<B, 1>,
    pub(super) offsets: Vec<Offsets>,
}

impl<B: Backend> LocalMemory<B> {
    /// The memory of these layers.
    pub fn of(learning: &LocalLearning, layers: Vec<LayerMemory<B>>, device: &B::Device) -> Self {
        let offsets = Offsets::all(learning);
        let number = |value: f32| Tensor::<B, 1>::from_data([value], device);
        let mut parts = Vec::new();
        for layer in &layers {
            let known = if layer.of_inputs.is_some() { 1.0 } else { 0.0 };
            let power = layer.power.clone().unwrap_or_else(|| number(-1.0));
            parts.extend([power, number(0.0), number(known)]);
        }
        for (layer, offsets) in layers.into_iter().zip(&offsets) {
            let [inputs, neurons, sequences] = offsets.sizes;
            let part = |tensor: Option<Tensor<B, 2>>, rows: usize, length: usize, absent: f32| {
                let length = rows * length;
                match tensor {
                    Some(tensor) => tensor.reshape([length]),
                    None => Tensor::full([length], absent, device),
                }
            };
            parts.extend([
                part(layer.seen, sequences, inputs, 0.0),
                part(layer.output, sequences, neurons, 0.0),
                part(layer.gain, sequences, neurons, 1.0),
                part(layer.of_inputs, 1, inputs, 0.0),
                part(layer.of_neurons, 1, neurons, 0.0),
            ]);
        }
        Self { numbers: Tensor::cat(parts, 0), offsets }
    }

    /// The last output of a layer, `[b, neurons]`.
    pub fn output(&self, layer: usize) -> Tensor<B, 2> {
        let Offsets { output, sizes: [_, neurons, sequences], .. } = self.offsets[layer];
        self.part(output, [sequences, neurons])
    }

    /// The first power but zero of each layer's inputs while the layer learned by a rate that is not
    /// relative, zero where there was none; read from the device.
    pub fn first_powers(&self) -> Vec<f32> {
        self.read().chunks_exact(NUMBERS).map(|of| of[1]).collect()
    }

    /// The memory of each layer. Powers, and the mark of a rule that remembers inputs, are read from the device;
    /// all else is there, be it written yet or not.
    pub fn layers(&self) -> Vec<LayerMemory<B>> {
        let numbers = self.read();
        let layer = |(of, offsets): (&[f32], &Offsets)| {
            let [inputs, neurons, sequences] = offsets.sizes;
            let known = of[2] != 0.0;
            LayerMemory {
                power: (of[0] >= 0.0 || of[0].is_nan())
                    .then(|| self.numbers.clone().narrow(0, offsets.numbers, 1)),
                seen: Some(self.part(offsets.seen, [sequences, inputs])),
                output: Some(self.part(offsets.output, [sequences, neurons])),
                gain: Some(self.part(offsets.gain, [sequences, neurons])),
                of_inputs: known.then(|| self.part(offsets.of_inputs, [1, inputs])),
                of_neurons: Some(self.part(offsets.of_neurons, [1, neurons])),
            }
        };
        numbers.chunks_exact(NUMBERS).zip(&self.offsets).map(layer).collect()
    }

    fn part(&self, first: usize, [rows, length]: [usize; 2]) -> Tensor<B, 2> {
        self.numbers.clone().narrow(0, first, rows * length).reshape([rows, length])
    }

    fn read(&self) -> Vec<f32> {
        let numbers = self.numbers.clone().narrow(0, 0, NUMBERS * self.offsets.len());
        numbers.into_data().iter::<f32>().collect()
    }
}
