//! The statistics over slices of host memory.

use std::ops::{Add, Deref};

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;
use fewshot_simd::instruction_set::InstructionSet;
use rayon::prelude::*;

use super::GradStatsCall;
use crate::environment::chosen;
use crate::host::{HostBackend, elements, into_elements, write_shape};
use crate::registry::Runs;

/// Floats in a chunk: a task of a thread, and a summand.
const CHUNK: usize = 1 << 14;

/// Floats over all gradients from which it pays to wake another thread.
const PARALLEL: usize = 1 << 18;

impl<H: HostBackend> Runs<GradStatsCall> for H {
    fn run(
        gradients: Vec<FloatTensor<H>>,
        &GradStatsCall { factor }: &GradStatsCall,
    ) -> (Vec<FloatTensor<H>>, f64) {
        let body = chosen();
        if factor == 1.0 {
            let slices: Vec<_> = gradients.iter().map(elements::<H>).collect();
            let sum = squares(body, &slices);
            drop(slices);
            return (gradients, sum);
        }
        let places: Vec<_> =
            gradients.iter().map(|tensor| (tensor.shape(), H::float_device(tensor))).collect();
        let mut scaled: Vec<_> = gradients.into_iter().map(into_elements::<H>).collect();
        let sum = scale(body, &mut scaled, factor as f32);
        let tensors = scaled.into_iter().zip(places);
        let tensor = |(elements, (shape, device))| write_shape::<H>(elements, shape, &device);
        (tensors.map(tensor).collect(), sum)
    }
}

/// The sum of the squares of all elements, chunk by chunk in order.
fn squares<T: Deref<Target = [f32]>>(body: &dyn InstructionSet, of: &[T]) -> f64 {
    let floats = of.iter().map(|elements| elements.len()).sum();
    let chunks = of.iter().flat_map(|elements| elements.chunks(CHUNK)).collect();
    total(chunks, floats, |chunk: &[f32]| {
        let mut sum = 0.0;
        body.square_sum(chunk, &mut sum);
        sum
    })
}

/// Multiplies all elements, and returns the sum of their squares.
fn scale(body: &dyn InstructionSet, of: &mut [Vec<f32>], factor: f32) -> f64 {
    let floats = of.iter().map(Vec::len).sum();
    let chunks = of.iter_mut().flat_map(|elements| elements.chunks_mut(CHUNK)).collect();
    total(chunks, floats, |chunk: &mut [f32]| {
        let mut sum = 0.0;
        body.scale(factor, chunk);
        body.square_sum(chunk, &mut sum);
        sum
    })
}

/// The sum over all chunks in order.
fn total<T: Send>(chunks: Vec<T>, floats: usize, sum: impl Fn(T) -> f64 + Send + Sync) -> f64 {
    let sums: Vec<f64> = match floats < PARALLEL {
        true => chunks.into_iter().map(sum).collect(),
        false => chunks.into_par_iter().map(sum).collect(),
    };
    sums.into_iter().fold(0.0, Add::add)
}

#[cfg(test)]
mod tests {
    use fewshot_simd::instruction_set::bodies;

    use super::*;

    #[test]
    fn the_instructions_change_no_bit() {
        for size in [0, 1, 15, 17, 33, CHUNK + 3, PARALLEL + 1] {
            let values: Vec<f32> = (0..size).map(|i| ((i * 7919) % 2003) as f32 - 1000.3).collect();
            let set = [values.clone(), values];
            let exact: f64 = set.iter().flatten().map(|&v| f64::from(v).powi(2)).sum();
            let sums: Vec<_> = bodies().iter().map(|body| squares(*body, &set)).collect();
            assert!(sums.iter().all(|sum| sum.to_bits() == sums[0].to_bits()), "{sums:?}");
            assert!((sums[0] - exact).abs() <= 1e-10 * exact);
            for body in bodies() {
                let mut scaled = set.clone();
                assert_eq!(scale(body, &mut scaled, 0.5), sums[0] / 4.0);
                let pairs = scaled.iter().flatten().zip(set.iter().flatten());
                assert!(pairs.into_iter().all(|(half, whole)| 2.0 * half == *whole));
            }
        }
    }
}
