//! Stacked tasks: a stack of several lanes is its lanes side by side.

use std::collections::HashMap;

use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_kernels::{ConvBlock, Moments, StackOptions, Statistics, conv_stack};

use super::leaves::{Leaves, VECTORS};
use super::network::Network;
use super::run::*;
use crate::judge::{assert_close, largest, read};

/// Networks of the same shape, and their tensors side by side.
struct Lanes<B: Backend> {
    single: Vec<(Network, Leaves<B>)>,
    images: Tensor<B, 4>,
    blocks: Vec<ConvBlock<B>>,
    output_gradient: Tensor<B, 4>,
    statistics: Statistics<B>,
}

impl<B: Backend> Lanes<B> {
    fn new(running: bool) -> Self {
        let specs = [(5, 1, true), (3, 2, false)];
        let network = |seed| Network::new(seed, [4, 2, 9, 8], &specs);
        let networks = [110, 111, 112].map(network);
        let networks = networks.map(|n| if running { n.with_running() } else { n });
        let single: Vec<_> =
            networks.into_iter().map(|n| (n.clone(), Leaves::new(&n, |_| false))).collect();
        let all = |part: &dyn Fn(&Leaves<B>) -> Tensor<B, 4>, dim| {
            Tensor::cat(single.iter().map(|(_, leaves)| part(leaves)).collect(), dim)
        };
        let blocks = single[0].0.layers.iter().enumerate().map(|(k, layer)| {
            let vector = |v: usize| {
                let parts = single.iter().filter_map(|(_, leaves)| leaves.vectors[k][v].clone());
                Some(Tensor::cat(parts.collect(), 0))
            };
            ConvBlock {
                weight: all(&|leaves| leaves.weights[k].clone(), 0),
                bias: vector(0),
                gamma: vector(1),
                beta: vector(2),
                stride: layer.stride,
                pool: layer.pool,
            }
        });
        let statistics = match running {
            false => Statistics::Batch,
            true => {
                let moments = single.iter().map(|(network, _)| match network.statistics::<B>() {
                    Statistics::Running(moments) => moments,
                    Statistics::Batch => panic!("the network has running statistics"),
                });
                let moments: Vec<_> = moments.collect();
                let side_by_side = |k: usize| {
                    let of = |part: &dyn Fn(&Moments<B>) -> Tensor<B, 1>| {
                        Tensor::cat(moments.iter().map(|lane| part(&lane[k])).collect(), 0)
                    };
                    Moments { mean: of(&|m| m.mean.clone()), variance: of(&|m| m.variance.clone()) }
                };
                Statistics::Running((0..specs.len()).map(side_by_side).collect())
            }
        };
        let blocks = blocks.collect();
        let images = all(&|leaves| leaves.images.clone(), 1);
        let output_gradient = all(&|leaves| leaves.output_gradient.clone(), 1);
        Self { images, blocks, output_gradient, statistics, single }
    }

    fn options(&self) -> StackOptions {
        StackOptions { lanes: self.single.len(), ..Default::default() }
    }
}

pub fn a_stack_of_lanes_is_its_lanes<B: AutodiffBackend>() {
    for running in [false, true] {
        let mut lanes = Lanes::<B>::new(running);
        lanes.images = lanes.images.require_grad();
        for block in &mut lanes.blocks {
            block.weight = block.weight.clone().require_grad();
            for vector in [&mut block.bias, &mut block.gamma, &mut block.beta] {
                *vector = vector.take().map(Tensor::require_grad);
            }
        }
        let output = conv_stack(
            lanes.images.clone(),
            &lanes.blocks,
            lanes.statistics.clone(),
            lanes.options(),
        );
        let grads = (output.features.clone() * lanes.output_gradient.clone()).sum().backward();
        for (t, (network, _)) in lanes.single.iter().enumerate() {
            let expected = run::<B>(network, conv_stack, all_but_output_gradient);
            let [_, c, ..] = expected.dims;
            let features = read(output.features.clone().narrow(1, t * c, c));
            let bound = VALUES * largest(&expected.features);
            assert_close("features of a lane", &features, &expected.features, bound);
            for (block, moments) in output.moments.iter().enumerate() {
                let length = network.layers[block].channels;
                let mean = read(moments.mean.clone().narrow(0, t * length, length));
                assert_close("mean of a lane", &mean, &expected.moments[block][0], VALUES);
            }
            let mut found = HashMap::new();
            let images = lanes.images.grad(&grads).unwrap().narrow(1, 2 * t, 2);
            found.insert("input".to_string(), read(images));
            for (k, block) in lanes.blocks.iter().enumerate() {
                let out = network.layers[k].channels;
                let weight = block.weight.grad(&grads).unwrap().narrow(0, t * out, out);
                found.insert(format!("blocks.{k}.conv.weight"), read(weight));
                let vectors = [&block.bias, &block.gamma, &block.beta];
                for (vector, name) in vectors.into_iter().zip(VECTORS) {
                    let vector = vector.as_ref().unwrap().grad(&grads).unwrap();
                    found
                        .insert(format!("blocks.{k}.{name}"), read(vector.narrow(0, t * out, out)));
                }
            }
            let what = &network.name;
            assert_gradients(what, &found, &expected.gradients, GRADIENTS, |name| {
                !running && vanishes_under_batch_statistics(name)
            });
        }
    }
}

#[cfg(feature = "flex")]
mod on_flex {
    use burn::backend::{Autodiff, Flex};
    use fewshot_kernels::conv_stack::reference;

    use super::*;
    use crate::judge::with_any_threads;

    type Nested = Autodiff<Autodiff<Flex>>;

    /// Second gradients by the weights: of the sum of the squares of the first ones.
    fn second(
        stack: impl Fn(Tensor<Nested, 4>, &[ConvBlock<Nested>], Statistics<Nested>) -> Tensor<Nested, 4>,
    ) -> Vec<Vec<f32>> {
        let lanes = Lanes::<Autodiff<Flex>>::new(false);
        let inner: Vec<_> =
            lanes.blocks.iter().map(|block| block.weight.clone().require_grad()).collect();
        let lift =
            |vector: &Option<Tensor<Autodiff<Flex>, 1>>| vector.clone().map(Tensor::from_inner);
        let blocks = lanes.blocks.iter().zip(&inner).map(|(block, weight)| ConvBlock {
            weight: Tensor::<Nested, 4>::from_inner(weight.clone()).require_grad(),
            bias: lift(&block.bias),
            gamma: lift(&block.gamma),
            beta: lift(&block.beta),
            stride: block.stride,
            pool: block.pool,
        });
        let blocks: Vec<_> = blocks.collect();
        let images = Tensor::from_inner(lanes.images.clone());
        let features = stack(images, &blocks, Statistics::Batch);
        let first = (features * Tensor::from_inner(lanes.output_gradient.clone())).sum().backward();
        let square = |block: &ConvBlock<Nested>| {
            let gradient = block.weight.grad(&first).unwrap();
            (gradient.clone() * gradient).sum()
        };
        let sum = Tensor::cat(blocks.iter().map(square).collect(), 0).sum().backward();
        inner.iter().map(|weight| read(weight.grad(&sum).unwrap())).collect()
    }

    #[test]
    fn second_gradients_of_lanes_equal_the_reference() {
        let options = StackOptions { lanes: 3, ..Default::default() };
        let found = second(|images, blocks, statistics| {
            conv_stack(images, blocks, statistics, options).features
        });
        let expected = second(|images, blocks, statistics| {
            reference::conv_stack(images, blocks, statistics, options).features
        });
        for (found, expected) in found.iter().zip(&expected) {
            assert_close("second gradient", found, expected, SECOND * largest(expected));
        }
    }

    #[test]
    fn the_number_of_threads_changes_no_bit_of_lanes() {
        with_any_threads("lanes", || {
            second(|images, blocks, statistics| {
                let options = StackOptions { lanes: 3, ..Default::default() };
                conv_stack(images, blocks, statistics, options).features
            })
        });
    }
}
