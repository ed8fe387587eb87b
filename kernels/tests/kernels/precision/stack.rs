//! The stack of blocks with convolutions of low precision.

use fewshot_kernels::conv2d::reference::conv2d;
use fewshot_kernels::norm_relu::{Rectified, reference};
use fewshot_kernels::{ConvBlock, Moments, StackOptions, Statistics, conv_stack, with_reference};

use super::*;

pub const IMAGES: [usize; 4] = [6, 3, 12, 11];

fn block<B: Backend>(seed: u64, [from, to]: [usize; 2], stride: usize, pool: bool) -> ConvBlock<B> {
    let vector = |seed| drawn::<B, 1>(seed, [to]) * 0.3;
    ConvBlock {
        weight: drawn(seed, [to, from, 3, 3]),
        bias: Some(vector(seed + 1)),
        gamma: Some(vector(seed + 2) + 1.0),
        beta: Some(vector(seed + 3)),
        stride,
        pool,
    }
}

pub fn blocks<B: Backend>() -> Vec<ConvBlock<B>> {
    vec![block(10, [3, 8], 1, true), block(20, [8, 6], 2, false), block(30, [6, 5], 1, true)]
}

fn tracked<B: Backend>(blocks: Vec<ConvBlock<B>>) -> Vec<ConvBlock<B>> {
    let vector = |vector: Option<Tensor<B, 1>>| vector.map(Tensor::require_grad);
    let blocks = blocks.into_iter().map(|block| ConvBlock {
        weight: block.weight.require_grad(),
        bias: vector(block.bias),
        gamma: vector(block.gamma),
        beta: vector(block.beta),
        ..block
    });
    blocks.collect()
}

pub fn options(precision: Precision) -> StackOptions {
    StackOptions { precision, ..Default::default() }
}

/// Features, then the gradients by images, weights, gains and shifts.
type Outcome = Vec<Vec<f64>>;

fn outcome(stack: impl FnOnce(Tensor<Once, 4>, &[ConvBlock<Once>]) -> Tensor<Once, 4>) -> Outcome {
    let (images, blocks) = (drawn::<Once, 4>(1, IMAGES).require_grad(), tracked(blocks()));
    let features = stack(images.clone(), &blocks);
    let weights = drawn::<Once, 4>(2, features.dims()).cast(features.dtype());
    let found = (features.clone() * weights).sum().backward();
    let mut outcome = vec![read(features.inner())];
    let mut push = |gradient: Option<Tensor<Flex, 4>>| {
        let gradient = gradient.expect("it is tracked");
        assert_eq!(gradient.dtype(), DType::F32);
        outcome.push(read(gradient));
    };
    push(images.grad(&found));
    for block in &blocks {
        push(block.weight.grad(&found));
        for vector in [&block.gamma, &block.beta] {
            let gradient = vector.as_ref().and_then(|vector| vector.grad(&found));
            push(gradient.map(Tensor::unsqueeze));
        }
    }
    outcome
}

/// Rounds a map or a weight.
type Rounding<'a> = &'a dyn Fn(Tensor<Once, 4>) -> Tensor<Once, 4>;

/// The stack in f64 but for the operands and results of its convolutions, which are rounded in these ways.
pub fn law(
    images: Tensor<Once, 4>,
    blocks: &[ConvBlock<Once>],
    [operand, result]: [Rounding<'_>; 2],
) -> Tensor<Once, 4> {
    blocks.iter().fold(images, |x, block| {
        let vector = |v: &Option<Tensor<Once, 1>>| v.clone().map(|v| v.cast(FloatDType::F64));
        let [bias, gamma, beta] = [&block.bias, &block.gamma, &block.beta].map(vector);
        let y = conv2d(operand(x), operand(block.weight.clone()), None, block.stride, 1);
        let bias = bias.expect("there is one");
        let channels = bias.dims()[0];
        let y = result(y) + bias.reshape([1, channels, 1, 1]);
        let after = Rectified { pool: block.pool };
        reference::norm_relu(y, gamma, beta, None, 1e-5, after).0
    })
}

fn norm(a: &[f64]) -> f64 {
    a.iter().map(|v| v * v).sum::<f64>().sqrt()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    let error: Vec<_> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    norm(&error) / norm(b)
}

fn in_precision(precision: Precision) -> Outcome {
    outcome(|images, blocks| {
        let output = conv_stack(images, blocks, Statistics::Batch, options(precision));
        assert_eq!(output.features.dtype(), DType::F32);
        assert_eq!(output.moments.len(), 3);
        output.features
    })
}

#[test]
fn the_stack_rounds_what_its_convolutions_take_and_give() {
    let exact = in_precision(Precision::F32);
    for (precision, rounding) in LOW {
        let found = in_precision(precision);
        let round = |x: Tensor<Once, 4>| x.cast(low(precision)).cast(FloatDType::F64);
        let expected = outcome(|images, blocks| law(images, blocks, [&round; 2]));
        let plain = with_reference(|| in_precision(precision));
        for (index, found) in found.iter().enumerate() {
            let what = format!("{index} in {precision:?}");
            // Sums in f32 and f64 may round to neighbours in the low type, and so on from there.
            for found in [found, &plain[index]] {
                let (error, bound) = (distance(found, &expected[index]), 1.0 / 256.0);
                assert!(error < bound, "{what}: {error:e}");
            }
            let error = distance(found, &exact[index]);
            // The last shift only sees which pixels are positive.
            let last = index + 1 == exact.len();
            // The last gain sees one rounded product alone, that before it.
            let least = if index + 2 == exact.len() { rounding / 2.0 } else { rounding };
            assert!(last || error > least, "{what}: {error:e} off f32");
        }
    }
}

#[test]
fn batch_statistics_are_those_of_f32() {
    // Outputs of a tenth around a hundred, whose neighbours in bf16 are half apart.
    let device = Default::default();
    let images = drawn::<Flex, 4>(1, [8, 2, 6, 6]);
    let block = ConvBlock::<Flex> {
        weight: drawn::<Flex, 4>(2, [3, 2, 3, 3]) * 0.03,
        bias: Some(Tensor::full([3], 100.0, &device)),
        gamma: None,
        beta: None,
        stride: 1,
        pool: false,
    };
    let blocks = [block];
    for (precision, rounding) in LOW {
        let run = |precision| {
            let images = images.clone();
            let output = conv_stack(images, &blocks, Statistics::Batch, options(precision));
            let moments = output.moments[0].clone();
            (read(output.features), read(moments.mean), read(moments.variance))
        };
        let ((features, mean, variance), exact) = (run(precision), run(Precision::F32));
        assert_near("mean", &mean, &exact.1, 1e-5, 0.0);
        assert_near("variance", &variance, &exact.2, 4.0 * rounding, 0.0);
        assert_near("features", &features, &exact.0, 0.0, 8.0 * rounding);
    }
}

#[test]
fn running_statistics_normalise_as_those_of_the_batch_do() {
    for (precision, _) in LOW {
        let images = drawn::<Flex, 4>(1, IMAGES);
        let blocks = blocks::<Flex>();
        let run = |statistics| conv_stack(images.clone(), &blocks, statistics, options(precision));
        let batch = run(Statistics::Batch);
        let running: Vec<Moments<Flex>> = batch.moments;
        let found = run(Statistics::Running(running));
        assert!(found.moments.is_empty());
        // The last bits of a norm may round to neighbours in the next convolution.
        let error = distance(&read(found.features), &read(batch.features));
        assert!(error < 1e-3, "{precision:?}: {error:e}");
    }
}

#[test]
fn lanes_of_low_precision_are_stacks_of_their_own() {
    for (precision, _) in LOW {
        let lane = |seed: u64| {
            let images = drawn::<Flex, 4>(seed, [4, 2, 8, 8]);
            let blocks =
                vec![block::<Flex>(seed + 10, [2, 4], 1, true), block(seed + 20, [4, 3], 1, true)];
            (images, blocks)
        };
        let lanes = [lane(100), lane(200)];
        let expected = lanes.clone().map(|(images, blocks)| {
            conv_stack(images, &blocks, Statistics::Batch, options(precision)).features
        });
        let [(first, a), (second, b)] = lanes;
        let images = Tensor::cat(vec![first, second], 1);
        let both = |a: &Option<Tensor<Flex, 1>>, b: &Option<Tensor<Flex, 1>>| {
            Some(Tensor::cat(vec![a.clone()?, b.clone()?], 0))
        };
        let blocks: Vec<_> = a
            .iter()
            .zip(&b)
            .map(|(a, b)| ConvBlock {
                weight: Tensor::cat(vec![a.weight.clone(), b.weight.clone()], 0),
                bias: both(&a.bias, &b.bias),
                gamma: both(&a.gamma, &b.gamma),
                beta: both(&a.beta, &b.beta),
                ..a.clone()
            })
            .collect();
        let options = StackOptions { lanes: 2, ..options(precision) };
        let found = conv_stack(images, &blocks, Statistics::Batch, options).features;
        let expected = Tensor::cat(expected.to_vec(), 1);
        let error = distance(&read(found), &read(expected));
        assert!(error < 1e-3, "{precision:?}: {error:e}");
    }
}

/// The batch's, or drawn ones.
fn statistics<B: Backend>(blocks: &[ConvBlock<B>], running: bool) -> Statistics<B> {
    if !running {
        return Statistics::Batch;
    }
    let moments = |(seed, block): (u64, &ConvBlock<B>)| {
        let channels = [block.weight.dims()[0]];
        let variance = drawn::<B, 1>(seed + 1, channels).abs() + 0.5;
        Moments { mean: drawn(seed, channels), variance }
    };
    Statistics::Running((60..).step_by(2).zip(blocks).map(moments).collect())
}

/// Stacks whose convolutions go every way: again at each pass, by strips, by transforms, with a stride,
/// on tiles.
fn kinds() -> [Vec<ConvBlock<Once>>; 4] {
    [
        vec![block(10, [3, 8], 1, false), block(20, [8, 6], 1, true)],
        vec![block(10, [3, 20], 2, false), block(20, [20, 17], 2, false)],
        vec![
            block(10, [3, 32], 1, true),
            block(20, [32, 40], 1, false),
            block(30, [40, 32], 1, true),
        ],
        vec![
            block(10, [3, 32], 1, true),
            block(20, [32, 64], 1, true),
            block(30, [64, 32], 1, false),
        ],
    ]
}

/// The stack made of layers, of which convolutions alone know of the precision.
fn layers(
    images: Tensor<Once, 4>,
    blocks: &[ConvBlock<Once>],
    statistics: Statistics<Once>,
    precision: Precision,
) -> Tensor<Once, 4> {
    let moments = match statistics {
        Statistics::Batch => vec![None; blocks.len()],
        Statistics::Running(moments) => moments.into_iter().map(Some).collect(),
    };
    blocks.iter().zip(moments).fold(images, |x, (block, moments)| {
        let ConvBlock { weight, bias, gamma, beta, stride, pool } = block.clone();
        let y = precision.conv2d(x, weight, bias, stride, 1);
        reference::norm_relu(y, gamma, beta, moments, 1e-5, Rectified { pool }).0
    })
}

/// The gradients by images, where they are asked for, weights, biases, gains and shifts.
fn gradients(
    blocks: &[ConvBlock<Once>],
    of_images: bool,
    stack: impl FnOnce(Tensor<Once, 4>, &[ConvBlock<Once>]) -> Tensor<Once, 4>,
) -> Outcome {
    let images = drawn::<Once, 4>(1, [19, 3, 12, 11]);
    let images = if of_images { images.require_grad() } else { images };
    let blocks = tracked(blocks.to_vec());
    let features = stack(images.clone(), &blocks);
    let weights = drawn::<Once, 4>(2, features.dims());
    let found = (features * weights).sum().backward();
    let mut gradients = Vec::new();
    gradients.extend(images.grad(&found).map(read));
    for block in &blocks {
        gradients.extend(block.weight.grad(&found).map(read));
        for vector in [&block.bias, &block.gamma, &block.beta].into_iter().flatten() {
            gradients.extend(vector.grad(&found).map(read));
        }
    }
    assert_eq!(gradients.len(), usize::from(of_images) + 4 * blocks.len());
    gradients
}

#[test]
fn gradients_of_every_kind_of_stack_are_those_of_layers() {
    let ways = [(false, false), (true, false), (false, true), (true, true)];
    for (precision, _) in LOW {
        for (kind, blocks) in kinds().iter().enumerate() {
            for (of_images, running) in ways {
                let how = || statistics(blocks, running);
                let found = gradients(blocks, of_images, |images, blocks| {
                    conv_stack(images, blocks, how(), options(precision)).features
                });
                let wanted = gradients(blocks, of_images, |images, blocks| {
                    layers(images, blocks, how(), precision)
                });
                // Under statistics of the batch a sum that rounds to the neighbour moves all pixels,
                // and one that turns negative by it is missing in the gradient.
                let bound = if running { 1e-3 } else { 0.1 };
                for (index, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                    let what = format!("{index} of {kind}, {of_images}, {running}, {precision:?}");
                    // There a bias has no gradient but that of rounding.
                    let error = match norm(found) {
                        0.0 => norm(wanted),
                        _ => distance(found, wanted),
                    };
                    assert!(error < bound, "{what}: {error:e}");
                }
            }
        }
    }
}

#[test]
fn images_of_a_low_type_have_features_of_f32() {
    let images = drawn::<Flex, 4>(1, IMAGES).cast(FloatDType::BF16);
    let run = |images| {
        let options = options(Precision::MixedBf16);
        conv_stack(images, &blocks::<Flex>(), Statistics::Batch, options).features
    };
    let found = run(images.clone());
    assert_eq!(found.dtype(), DType::F32);
    assert_eq!(read(found), read(run(images.cast(FloatDType::F32))));
}

#[test]
fn blocks_of_a_low_type_are_taken_as_f32_but_for_products() {
    let low = |vector: Option<Tensor<Flex, 1>>| vector.map(|of| of.cast(FloatDType::BF16));
    let blocks = blocks::<Flex>().into_iter().map(|block| ConvBlock {
        weight: block.weight.cast(FloatDType::BF16),
        bias: low(block.bias),
        gamma: low(block.gamma),
        beta: low(block.beta),
        ..block
    });
    let blocks: Vec<_> = blocks.collect();
    let how = options(Precision::MixedBf16);
    let run = || conv_stack(drawn(1, IMAGES), &blocks, Statistics::Batch, how).features;
    let (found, plain) = (run(), with_reference(run));
    assert_eq!([found.dtype(), plain.dtype()], [DType::F32; 2]);
    let error = distance(&read(found), &read(plain));
    assert!(error < 1e-3, "{error:e}");
}

#[test]
fn checkpointing_changes_no_bit_of_low_precision() {
    use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
    fn gradient<B: AutodiffBackend>() -> Vec<f64> {
        let (images, blocks) = (drawn::<B, 4>(1, IMAGES), tracked(blocks::<B>()));
        let how = options(Precision::MixedBf16);
        let features = conv_stack(images, &blocks, Statistics::Batch, how).features;
        let weights = drawn::<B, 4>(2, features.dims());
        let found = (features * weights).sum().backward();
        read(blocks[0].weight.grad(&found).expect("it is tracked"))
    }
    assert_eq!(gradient::<Once>(), gradient::<Autodiff<Flex, BalancedCheckpointing>>());
}

/// The derivatives, by images and weights, of the product of the first gradients with directions.
fn second(precision: Precision, running: bool) -> Outcome {
    fn lift<const D: usize>(leaf: &Tensor<Once, D>) -> Tensor<Twice, D> {
        Tensor::from_inner(leaf.clone()).require_grad()
    }
    let (images, blocks) = (drawn::<Once, 4>(1, IMAGES).require_grad(), tracked(blocks()));
    let of_images = lift(&images);
    let lifted: Vec<_> = blocks
        .iter()
        .map(|block: &ConvBlock<Once>| ConvBlock {
            weight: lift(&block.weight),
            bias: block.bias.as_ref().map(lift),
            gamma: block.gamma.as_ref().map(lift),
            beta: block.beta.as_ref().map(lift),
            stride: block.stride,
            pool: block.pool,
        })
        .collect();
    let how = (statistics(&lifted, running), options(precision));
    let features = conv_stack(of_images.clone(), &lifted, how.0, how.1).features;
    assert_eq!(features.dtype(), DType::F32);
    let weights = drawn::<Twice, 4>(2, features.dims());
    let first = (features * weights).sum().backward();
    let leaves = || [&of_images].into_iter().chain(lifted.iter().map(|block| &block.weight));
    let products = (50..).zip(leaves()).map(|(seed, leaf)| {
        (leaf.grad(&first).expect("it is tracked") * drawn(seed, leaf.dims())).sum()
    });
    let found = Tensor::cat(products.collect(), 0).sum().backward();
    let leaves = [&images].into_iter().chain(blocks.iter().map(|block| &block.weight));
    leaves.map(|leaf| read(leaf.grad(&found).expect("it is tracked"))).collect()
}

#[test]
fn second_gradients_are_of_the_same_precision() {
    for running in [false, true] {
        let exact = second(Precision::F32, running);
        for (precision, rounding) in LOW {
            for (index, (found, exact)) in second(precision, running).iter().zip(&exact).enumerate()
            {
                let error = distance(found, exact);
                let what = format!("{index} in {precision:?}, {running}: {error:e} off f32");
                let most = if running { 0.6 } else { 0.5 };
                assert!(error > rounding / 2.0 && error < most, "{what}");
            }
        }
    }
}

#[test]
fn second_gradients_are_those_of_plain_operations() {
    // Not in f16, in which those of Flex add up as well.
    let (precision, rounding) = LOW[0];
    assert_eq!(precision, Precision::MixedBf16);
    let plain = with_reference(|| second(precision, true));
    for (index, (found, plain)) in second(precision, true).iter().zip(&plain).enumerate() {
        let error = distance(found, plain);
        // They round the two terms of the derivative of a product each.
        assert!(error < 2.0 * rounding, "{index}: {error:e}");
    }
}
