//! The sums over slices of host memory.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, TensorMetadata};
use fewshot_simd::buffers::Buffer;
use fewshot_simd::contract::{Contraction, RowOffsets, Run};
use fewshot_simd::instruction_set::InstructionSet;
use rayon::prelude::*;

use super::{WeightedSums, reference};
use crate::environment::chosen;
use crate::host::{HostBackend, elements, write_shape};
use crate::registry::Runs;

/// Examples that the weight is read for once, about: as many as stay in cache.
const BLOCK: usize = 256;

/// Neurons in a task of a thread, whose rows stay in cache while all tiles of a block go by.
const NEURONS: usize = 24;

/// Multiply-adds from which it pays to wake another thread.
const PARALLEL: usize = 1 << 20;

impl<H: HostBackend> Runs<WeightedSums> for H {
    fn run([x, weight]: [FloatTensor<H>; 2], _: &WeightedSums) -> FloatTensor<H> {
        let ([examples, inputs], neurons) = (x.shape().dims(), weight.shape()[0]);
        // One example leaves the time to memory, and the plain product reads the weight once too.
        if examples < 2 || inputs * neurons == 0 {
            return reference::weighted_sums::<H>(x, weight);
        }
        let sums = weighted_sums(chosen(), [&elements::<H>(&x), &elements::<H>(&weight)], inputs);
        write_shape::<H>(sums, Shape::new([examples, neurons]), &H::float_device(&x))
    }
}

/// The product of `x`, `[b, inputs]`, with the transpose of `weight`, `[neurons, inputs]`.
///
/// Every sum is made from the first input to the last, so the result does not depend on the number
/// of threads.
fn weighted_sums(body: &dyn InstructionSet, [x, weight]: [&[f32]; 2], inputs: usize) -> Vec<f32> {
    let neurons = weight.len() / inputs;
    let mut out = vec![0.0; x.len() / inputs * neurons];
    let blocks = x.chunks(BLOCK * inputs).zip(out.chunks_mut(BLOCK * neurons));
    for (x, out) in blocks {
        let packed = tiles(body, x, inputs);
        let sums = transposed(body, &packed, weight, inputs);
        rows(body, &sums, neurons, out);
    }
    out
}

/// Rows of `inputs` floats as `[tiles of rows, inputs, TILE]`.
fn tiles(body: &dyn InstructionSet, x: &[f32], inputs: usize) -> Buffer {
    let tile = body.tile();
    let places: Vec<usize> = (0..inputs).map(|input| input * tile).collect();
    let mut packed = Buffer::stale(x.len().next_multiple_of(tile * inputs));
    for (x, to) in x.chunks(tile * inputs).zip(packed.chunks_exact_mut(tile * inputs)) {
        if x.len() == to.len() {
            body.interleave(x, &places, to);
            continue;
        }
        let mut whole = Buffer::zeros(to.len());
        whole[..x.len()].copy_from_slice(x);
        body.interleave(&whole, &places, to);
    }
    packed
}

/// The sums of every neuron in a row, `[neurons, tiles of rows, TILE]`.
fn transposed(body: &dyn InstructionSet, packed: &[f32], weight: &[f32], inputs: usize) -> Buffer {
    let (tile, examples) = (body.tile(), packed.len() / inputs);
    let mut sums = Buffer::stale(weight.len() / inputs * examples);
    let run = |weight: &[f32], sums: &mut [f32]| {
        let rows: Vec<usize> = (0..weight.len()).step_by(inputs).collect();
        for (place, b) in packed.chunks_exact(tile * inputs).enumerate() {
            let job = Contraction {
                a: weight,
                rows: &rows,
                b,
                runs: &[Run { a: 0, b: 0, len: inputs }],
                a_step: 1,
                b_step: tile,
                to: RowOffsets::Strided(examples),
                accumulate: false,
            };
            body.contract(&job, &mut sums[place * tile..]);
        }
    };
    if packed.len() * (weight.len() / inputs) < PARALLEL {
        run(weight, &mut sums);
    } else {
        let parts = sums.par_chunks_mut(NEURONS * examples);
        parts.zip(weight.par_chunks(NEURONS * inputs)).for_each(|(sums, weight)| run(weight, sums));
    }
    sums
}

/// Writes the sums of the examples there are, one after the other.
fn rows(body: &dyn InstructionSet, sums: &[f32], neurons: usize, out: &mut [f32]) {
    let (tile, examples) = (body.tile(), sums.len() / neurons);
    let places: Vec<usize> = (0..neurons).map(|neuron| neuron * examples).collect();
    for (place, out) in out.chunks_mut(tile * neurons).enumerate() {
        let from = &sums[place * tile..];
        if out.len() == tile * neurons {
            body.separate(from, &places, out);
            continue;
        }
        let mut whole = Buffer::stale(tile * neurons);
        body.separate(from, &places, &mut whole);
        out.copy_from_slice(&whole[..out.len()]);
    }
}

#[cfg(test)]
mod tests {
    use fewshot_simd::instruction_set::bodies;
    use fewshot_simd::integers;

    use super::*;

    #[test]
    fn every_shape_is_summed_by_the_formula() {
        let sides = [1, 2, 7, 15, 16, 17, 31, 33, 65];
        let examples = [1, 2, 15, 16, 17, 31, 33, 64, BLOCK - 1, BLOCK, BLOCK + 1];
        for (inputs, neurons) in sides.iter().flat_map(|&i| sides.map(|n| (i, n))) {
            for examples in examples {
                let (x, weight) = (integers(examples * inputs, 1), integers(neurons * inputs, 2));
                let sum = |(x, weight): (&[f32], &[f32])| -> f32 {
                    x.iter().zip(weight).map(|(x, weight)| x * weight).sum()
                };
                let pairs =
                    x.chunks(inputs).flat_map(|x| weight.chunks(inputs).map(move |w| (x, w)));
                let expected: Vec<f32> = pairs.map(sum).collect();
                for body in bodies() {
                    let actual = weighted_sums(body, [&x, &weight], inputs);
                    let what = format!("{} {examples} of {inputs} to {neurons}", body.name());
                    assert_eq!(actual, expected, "{what}");
                }
            }
        }
    }
}
