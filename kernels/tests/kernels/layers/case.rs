//! A layer with its operands on the host, from which every backend makes its tensors.

use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor, TensorData, f16};
use fewshot_kernels::conv_stack::Moments;
use fewshot_kernels::norm_relu::Rectified;
use fewshot_kernels::{
    NormStatistics, batch_norm, conv2d, global_avg_pool, global_avg_pool_lanes, leaky_relu, linear,
    max_pool, norm_relu, overlapping_max_pool, relu6,
};
use fewshot_kernels::{
    batch_norm as norm, conv2d as conv, global_avg_pool as average, norm_relu as rectified,
};

use crate::numbers::Numbers;

/// Which layer, and what it is told besides its operands.
#[derive(Clone, Copy, Debug)]
pub enum Layer {
    /// `x`, `weight`, and `bias` where there is one.
    Convolution { stride: usize, padding: usize },
    /// `x`, and `gamma` and `beta` where there are any.
    Norm { running: bool, epsilon: f64 },
    /// As `Norm`.
    NormRelu { running: bool, epsilon: f64, pool: bool },
    /// `x`.
    MaxPool,
    /// `x`.
    OverlappingMaxPool,
    /// `x`.
    Average,
    /// So many lanes side by side in the channels.
    AverageOfLanes(usize),
    /// `x`.
    LeakyRelu { slope: f64 },
    /// `x`.
    Relu6,
    /// `x`, `weight`, and `bias` where there is one.
    Linear,
}

/// How a map lies in memory.
#[derive(Clone, Copy, Debug)]
pub enum Layout {
    Contiguous,
    /// From `[d, a, b, c]`.
    Permuted,
    /// From `[1, b, c, d]`; a vector from `[1]`.
    Expanded,
}

#[derive(Clone, Debug)]
pub struct Operand {
    pub name: &'static str,
    /// Shape that the layer sees.
    pub shape: Vec<usize>,
    pub layout: Layout,
    /// What is stored.
    pub values: Vec<f32>,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub layer: Layer,
    pub operands: Vec<Operand>,
    /// What operands are rounded to on their way to the kernels; the reference takes them as they are.
    pub low: Option<FloatDType>,
}

/// Whose body computes.
#[derive(Clone, Copy, Debug)]
pub enum By {
    Kernels,
    Reference,
}

impl Operand {
    pub fn drawn(name: &'static str, shape: &[usize], layout: Layout, seed: u64) -> Self {
        let seed = name.bytes().fold(seed, |seed, byte| seed * 31 + u64::from(byte));
        let mut operand = Self { name, shape: shape.to_vec(), layout, values: Vec::new() };
        operand.values = Numbers(seed).values(operand.stored().iter().product());
        operand
    }

    fn stored(&self) -> Vec<usize> {
        let shape = &self.shape;
        match (self.layout, &shape[..]) {
            (Layout::Contiguous, _) | (Layout::Permuted, [_] | [_, _]) => shape.clone(),
            (Layout::Permuted, [a, b, c, d]) => vec![*d, *a, *b, *c],
            (Layout::Expanded, [_, rest @ ..]) => [&[1], rest].concat(),
            _ => unreachable!("a rank of 1, 2 or 4"),
        }
    }

    /// The operand as the layer sees it, from its stored values.
    fn view<B: Backend, const D: usize>(&self, stored: &Tensor<B, 1>) -> Tensor<B, D> {
        let shape: [usize; D] = self.shape.clone().try_into().expect("the rank");
        let tensor =
            stored.clone().reshape(<[usize; D]>::try_from(self.stored()).expect("the rank"));
        match self.layout {
            Layout::Permuted if D == 4 => {
                let axes: [isize; D] = [1, 2, 3, 0][..].try_into().expect("the rank");
                tensor.permute(axes)
            }
            Layout::Expanded => tensor.expand(shape),
            _ => tensor,
        }
    }
}

impl Case {
    /// With operands of these shapes, drawn by their names.
    pub fn new(layer: Layer, layout: Layout, shapes: &[(&'static str, &[usize])]) -> Self {
        let seed = shapes[0].1.iter().fold(7, |seed, side| seed * 131 + *side as u64);
        let drawn = |&(name, shape): &(_, &[usize])| Operand::drawn(name, shape, layout, seed);
        Self { layer, operands: shapes.iter().map(drawn).collect(), low: None }
    }

    /// With numbers that f16 has, as f16.
    pub fn in_f16(mut self) -> Self {
        for value in self.operands.iter_mut().flat_map(|operand| &mut operand.values) {
            *value = f16::from_f32(*value).to_f32();
        }
        self.low = Some(FloatDType::F16);
        self
    }

    pub fn with(mut self, name: &str, value: impl Fn(usize, f32) -> f32) -> Self {
        let operand = self.operands.iter_mut().find(|operand| operand.name == name);
        let values = &mut operand.expect("an operand of this name").values;
        values.iter_mut().enumerate().for_each(|(i, v)| *v = value(i, *v));
        self
    }

    /// The leaves, flat, in the order of the operands.
    pub fn leaves<B: Backend>(&self) -> Vec<Tensor<B, 1>> {
        let leaf = |operand: &Operand| {
            Tensor::from_data(TensorData::from(&operand.values[..]), &Default::default())
        };
        self.operands.iter().map(leaf).collect()
    }

    fn find<B: Backend, const D: usize>(
        &self,
        name: &str,
        leaves: &[Tensor<B, 1>],
    ) -> Option<Tensor<B, D>> {
        let at = self.operands.iter().position(|operand| operand.name == name)?;
        Some(self.operands[at].view(&leaves[at]))
    }

    /// The moments that a norm is given.
    pub fn running<B: Backend>(&self) -> Moments<B> {
        let channels = self.operands[0].shape[1];
        let mut numbers = Numbers(99);
        let mut vector = |map: fn(f32) -> f32| {
            let values: Vec<f32> = numbers.values(channels).into_iter().map(map).collect();
            Tensor::from_data(TensorData::from(&values[..]), &Default::default())
        };
        Moments { mean: vector(|v| 0.3 * v), variance: vector(|v| 1.0 + 0.6 * v) }
    }

    /// The output, flat, in the type of the leaves.
    pub fn forward<B: Backend>(&self, by: By, leaves: &[Tensor<B, 1>]) -> Tensor<B, 1> {
        let (By::Kernels, Some(low)) = (by, self.low) else { return self.body(by, leaves) };
        let rounded: Vec<_> = leaves.iter().map(|leaf| leaf.clone().cast(low)).collect();
        let y = self.body(by, &rounded);
        assert_eq!(y.dtype(), low.into());
        y.cast(leaves[0].dtype())
    }

    fn body<B: Backend>(&self, by: By, leaves: &[Tensor<B, 1>]) -> Tensor<B, 1> {
        let x = || self.find::<B, 4>("x", leaves).expect("an input");
        let vector = |name| self.find::<B, 1>(name, leaves);
        match self.layer {
            Layer::Convolution { stride, padding } => {
                let weight = self.find("weight", leaves).expect("a weight");
                let body = match by {
                    By::Kernels => conv2d,
                    By::Reference => conv::reference::conv2d,
                };
                body(x(), weight, vector("bias"), stride, padding).flatten(0, 3)
            }
            Layer::Norm { .. } | Layer::NormRelu { .. } => {
                self.normalised(by, leaves).0.flatten(0, 3)
            }
            Layer::MaxPool => match by {
                By::Kernels => max_pool(x()).flatten(0, 3),
                By::Reference => fewshot_kernels::max_pool::reference::max_pool(x()).flatten(0, 3),
            },
            Layer::OverlappingMaxPool => match by {
                By::Kernels => overlapping_max_pool(x()).flatten(0, 3),
                By::Reference => {
                    fewshot_kernels::max_pool::reference::overlapping_max_pool(x()).flatten(0, 3)
                }
            },
            Layer::Average => match by {
                By::Kernels => global_avg_pool(x()).flatten(0, 1),
                By::Reference => average::reference::global_avg_pool(x()).flatten(0, 1),
            },
            Layer::AverageOfLanes(lanes) => match by {
                By::Kernels => global_avg_pool_lanes(x(), lanes).flatten(0, 2),
                By::Reference => {
                    average::reference::global_avg_pool_lanes(x(), lanes).flatten(0, 2)
                }
            },
            Layer::LeakyRelu { slope } => match by {
                By::Kernels => leaky_relu(x(), slope).flatten(0, 3),
                By::Reference => {
                    fewshot_kernels::leaky_relu::reference::leaky_relu(x(), slope).flatten(0, 3)
                }
            },
            Layer::Relu6 => match by {
                By::Kernels => relu6(x()).flatten(0, 3),
                By::Reference => fewshot_kernels::leaky_relu::reference::relu6(x()).flatten(0, 3),
            },
            Layer::Linear => {
                let [x, weight] = ["x", "weight"].map(|name| self.find::<B, 2>(name, leaves));
                let (x, weight) = (x.expect("an input"), weight.expect("a weight"));
                match by {
                    By::Kernels => linear(x, weight, vector("bias")).flatten(0, 1),
                    By::Reference => {
                        // Every product, summed over the features.
                        let products = x.unsqueeze_dim::<3>(2) * weight.unsqueeze_dim(0);
                        let y = products.sum_dim(1).squeeze_dim::<2>(1);
                        match vector("bias") {
                            Some(bias) => (y + bias.unsqueeze()).flatten(0, 1),
                            None => y.flatten(0, 1),
                        }
                    }
                }
            }
        }
    }

    /// The output and the moments of a norm.
    pub fn normalised<B: Backend>(
        &self,
        by: By,
        leaves: &[Tensor<B, 1>],
    ) -> (Tensor<B, 4>, Option<Moments<B>>) {
        let (running, epsilon, after) = match self.layer {
            Layer::Norm { running, epsilon } => (running, epsilon, None),
            Layer::NormRelu { running, epsilon, pool } => {
                (running, epsilon, Some(Rectified { pool }))
            }
            _ => panic!("not a norm"),
        };
        let x = self.find::<B, 4>("x", leaves).expect("an input");
        let (gamma, beta) = (self.find("gamma", leaves), self.find("beta", leaves));
        let running = running.then(|| self.running());
        let statistics = || running.clone().map_or(NormStatistics::Batch, NormStatistics::Running);
        match (by, after) {
            (By::Kernels, None) => batch_norm(x, gamma, beta, statistics(), epsilon),
            (By::Kernels, Some(after)) => {
                norm_relu(x, gamma, beta, statistics(), epsilon, after.pool)
            }
            (By::Reference, None) => norm::reference::batch_norm(x, gamma, beta, running, epsilon),
            (By::Reference, Some(after)) => {
                rectified::reference::norm_relu(x, gamma, beta, running, epsilon, after)
            }
        }
    }
}
