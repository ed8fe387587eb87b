//! A network on the host, from which every backend makes its tensors.

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use fewshot_kernels::{Moments, Precision, StackOptions, Statistics};

use crate::numbers::Numbers;

/// How the tensors of a network lie in memory.
#[derive(Clone, Copy, Debug)]
pub enum Layout {
    Contiguous,
    /// Images from `[n, h, w, c]`, weights from `[3, 3, c_in, c_out]`.
    Permuted,
    /// Images from `[1, c, h, w]`, vectors from `[1]`.
    Expanded,
}

/// A network and its images on the host, from which every backend makes its tensors.
#[derive(Clone)]
pub struct Network {
    pub name: String,
    pub images: TensorData,
    pub count: usize,
    pub layers: Vec<Layer>,
    pub running: Option<Vec<[TensorData; 2]>>,
    pub output_gradient: TensorData,
    pub layout: Layout,
    pub epsilon: f64,
    pub precision: Precision,
    pub ghost_batches: usize,
}

#[derive(Clone)]
pub struct Layer {
    pub weight: TensorData,
    /// Bias, gamma, beta.
    pub vectors: [Option<TensorData>; 3],
    pub channels: usize,
    pub stride: usize,
    pub pool: bool,
}

/// One block: channels, stride, pool.
pub type Spec = (usize, usize, bool);

impl Network {
    pub fn new(seed: u64, images: [usize; 4], specs: &[Spec]) -> Self {
        Self::laid_out(Layout::Contiguous, seed, images, specs)
    }

    pub fn laid_out(layout: Layout, seed: u64, images: [usize; 4], specs: &[Spec]) -> Self {
        let numbers = &mut Numbers(seed);
        let name = format!("{layout:?} network {seed} of {images:?}, {specs:?}");
        let [n, mut c, mut h, mut w] = images;
        let images = match layout {
            Layout::Contiguous => images,
            Layout::Permuted => [n, h, w, c],
            Layout::Expanded => [1, c, h, w],
        };
        let images = numbers.data(images, |x| 2.0 * x);
        let mut layers = Vec::new();
        for &(out, stride, pool) in specs {
            let weight = match layout {
                Layout::Permuted => [3, 3, c, out],
                _ => [out, c, 3, 3],
            };
            let length = if matches!(layout, Layout::Expanded) { 1 } else { out };
            let bound = (3.0 / c as f32).sqrt();
            layers.push(Layer {
                weight: numbers.data(weight, |x| bound * x),
                vectors: [
                    Some(numbers.data([length], |x| 0.3 * x)),
                    Some(numbers.data([length], |x| x.signum() * (0.5 + x.abs()))),
                    Some(numbers.data([length], |x| 0.5 * x)),
                ],
                channels: out,
                stride,
                pool,
            });
            let side = if pool { 2 } else { 1 };
            (c, h, w) = (out, h.div_ceil(stride) / side, w.div_ceil(stride) / side);
        }
        let output_gradient = numbers.data([n, c, h, w], |x| x);
        Self {
            name,
            images,
            count: n,
            layers,
            running: None,
            output_gradient,
            layout,
            epsilon: 1e-5,
            precision: Precision::F32,
            ghost_batches: 1,
        }
    }

    pub fn with_ghost_batches(self, ghost_batches: usize) -> Self {
        Self { ghost_batches, ..self }
    }

    /// The same network for one of so many batches of its images.
    pub fn batch(&self, index: usize, batches: usize) -> Self {
        let part = |data: &TensorData| {
            let values = data.as_slice::<f32>().expect("floats");
            let length = values.len() / batches;
            let mut shape = data.shape.clone();
            shape[0] /= batches;
            TensorData::new(values[index * length..][..length].to_vec(), shape)
        };
        let [images, output_gradient] = [&self.images, &self.output_gradient].map(part);
        Self { images, output_gradient, count: self.count / batches, ..self.clone() }
    }

    pub fn with_running(mut self) -> Self {
        let numbers = &mut Numbers(99);
        let moments = self.layers.iter().map(|layer| {
            [
                numbers.data([layer.channels], |x| 0.3 * x),
                numbers.data([layer.channels], |x| 1.0 + 0.6 * x),
            ]
        });
        self.running = Some(moments.collect());
        self.name += ", running statistics";
        self
    }

    /// With bias, gamma and beta of every block only where `keep` says so.
    pub fn with_vectors(mut self, keep: [bool; 3]) -> Self {
        for layer in &mut self.layers {
            for (vector, keep) in layer.vectors.iter_mut().zip(keep) {
                vector.take_if(|_| !keep);
            }
        }
        self
    }

    /// With a gamma and beta of these values, in turn over the channels.
    pub fn with_affine(mut self, gamma: &[f32], beta: &[f32]) -> Self {
        let turn = |values: &[f32], length| {
            let values = values.iter().copied().cycle().take(length).collect::<Vec<f32>>();
            Some(TensorData::new(values, [length]))
        };
        for layer in &mut self.layers {
            layer.vectors[1] = turn(gamma, layer.channels);
            layer.vectors[2] = turn(beta, layer.channels);
        }
        self
    }

    pub fn options(&self) -> StackOptions {
        let Self { epsilon, precision, ghost_batches, .. } = *self;
        StackOptions { epsilon, precision, ghost_batches, ..Default::default() }
    }

    pub fn statistics<B: Backend>(&self) -> Statistics<B> {
        let vector = |data: &TensorData| Tensor::from_data(data.clone(), &Default::default());
        match &self.running {
            None => Statistics::Batch,
            Some(moments) => Statistics::Running(
                moments
                    .iter()
                    .map(|[mean, variance]| Moments {
                        mean: vector(mean),
                        variance: vector(variance),
                    })
                    .collect(),
            ),
        }
    }
}
