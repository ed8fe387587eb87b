use std::f64::consts::PI;

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

use super::PlasticityError;
use crate::random::{Purpose, Stream};

/// Inputs whose principal components are known: slow and fast sources, mixed along cosines.
///
/// `x_t = sum_k s_k z_k(t) u_k` with the orthonormal `u_k(i) = sqrt(2 / n) cos(pi (i + 1/2) (k + 1)
/// / n)`, powers `s_k^2` that halve from one source to the next and add up to 1, and
/// autoregressive `z_k` of variance 1 that forget within `2, 4, 8, 16, 2, ...` ticks. So `E|x|^2 = 1`.
#[derive(Clone, Copy, Debug)]
pub struct Sources {
    inputs: usize,
    sources: usize,
    seed: u64,
}

/// Sequences of [`Sources`], tick after tick.
pub struct SourceStream {
    mixing: Vec<Vec<f32>>,
    sequences: Vec<(Stream, Vec<f64>)>,
}

impl Sources {
    /// Inputs of `inputs` values made of up to `sources` sources.
    ///
    /// # Errors
    /// Unless there is a source and there are more inputs than sources.
    pub fn new(inputs: usize, sources: usize, seed: u64) -> Result<Self, PlasticityError> {
        let expected = "between 1 and one less than the inputs";
        match (1..inputs).contains(&sources) {
            true => Ok(Self { inputs, sources, seed }),
            false => Err(PlasticityError::Setting {
                name: "number of sources",
                expected,
                actual: sources as f64,
            }),
        }
    }

    /// The direction of source `k`, of length 1.
    pub fn direction(&self, k: usize) -> Vec<f32> {
        let n = self.inputs as f64;
        let at = |i: usize| (2.0 / n).sqrt() * (PI * (i as f64 + 0.5) * (k as f64 + 1.0) / n).cos();
        (0..self.inputs).map(|i| at(i) as f32).collect()
    }

    /// The power `s_k^2` of source `k`.
    pub fn power(&self, k: usize) -> f64 {
        0.5f64.powi(k as i32) / (2.0 - 0.5f64.powi(self.sources as i32 - 1))
    }

    /// `batch` independent sequences from their first tick.
    pub fn stream(&self, batch: usize) -> SourceStream {
        let scaled = |k| {
            let scale = self.power(k).sqrt() as f32;
            self.direction(k).into_iter().map(|value| value * scale).collect()
        };
        let begin = |sequence: usize| {
            let mut random = Stream::new(self.seed, Purpose::Sources, [sequence as u64, 0]);
            let values = (0..self.sources).map(|_| random.irwin_hall(1.0)).collect();
            (random, values)
        };
        SourceStream {
            mixing: (0..self.sources).map(scaled).collect(),
            sequences: (0..batch).map(begin).collect(),
        }
    }
}

impl SourceStream {
    /// The next ticks, `[batch, ticks, inputs]`.
    pub fn next<B: Backend>(&mut self, ticks: usize, device: &B::Device) -> Tensor<B, 3> {
        let inputs = self.mixing[0].len();
        let shape = [self.sequences.len(), ticks, inputs];
        let mut values = vec![0.0; shape.iter().product()];
        let blocks = values.chunks_exact_mut((ticks * inputs).max(1));
        for ((random, sources), block) in self.sequences.iter_mut().zip(blocks) {
            for out in block.chunks_exact_mut(inputs) {
                mix(&self.mixing, sources, out);
                advance(random, sources);
            }
        }
        Tensor::from_data(TensorData::new(values, shape), device)
    }
}

fn mix(mixing: &[Vec<f32>], sources: &[f64], out: &mut [f32]) {
    for (direction, &source) in mixing.iter().zip(sources) {
        let source = source as f32;
        out.iter_mut().zip(direction).for_each(|(out, value)| *out += source * value);
    }
}

fn advance(random: &mut Stream, sources: &mut [f64]) {
    for (k, source) in sources.iter_mut().enumerate() {
        let memory = 1.0 - 0.5f64.powi(k as i32 % 4 + 1);
        *source = memory * *source + (1.0 - memory * memory).sqrt() * random.irwin_hall(1.0);
    }
}
