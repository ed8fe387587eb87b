//! The stack of blocks with convolutions of low precision.

use burn::tensor::activation::relu;
use fewshot_kernels::conv_stack::reference;
use fewshot_kernels::conv2d::reference::conv2d;
use fewshot_kernels::{
    BlockTangent, ConvBlock, GradientsOf, Moments, StackDirection, StackOptions, Statistics,
    conv_stack, conv_stack_along, with_reference,
};

use super::*;

const IMAGES: [usize; 4] = [6, 3, 12, 11];

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

fn blocks<B: Backend>() -> Vec<ConvBlock<B>> {
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

fn options(precision: Precision) -> StackOptions {
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

/// The stack in f64 but for the operands and results of its convolutions, which are rounded.
fn law(
    images: Tensor<Once, 4>,
    blocks: &[ConvBlock<Once>],
    precision: Precision,
) -> Tensor<Once, 4> {
    let round = |x: Tensor<Once, 4>| x.cast(low(precision)).cast(FloatDType::F64);
    blocks.iter().fold(images, |x, block| {
        let vector = |v: &Option<Tensor<Once, 1>>| v.clone().map(|v| v.cast(FloatDType::F64));
        let [bias, gamma, beta] = [&block.bias, &block.gamma, &block.beta].map(vector);
        let y = conv2d(round(x), round(block.weight.clone()), None, block.stride, 1);
        let bias = bias.expect("there is one");
        let channels = bias.dims()[0];
        let y = round(y) + bias.reshape([1, channels, 1, 1]);
        let y = relu(reference::batch_norm(y, gamma, beta, None, 1e-5).0);
        if block.pool { reference::max_pool(y) } else { y }
    })
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let error = squares(&mut a.iter().zip(b).map(|(a, b)| a - b));
    error / squares(&mut b.iter().copied())
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
        let expected = outcome(|images, blocks| law(images, blocks, precision));
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
            assert!(last || error > rounding, "{what}: {error:e} off f32");
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

/// Features, their change along a direction, and those of the gradients by images and weights.
fn along(precision: Precision) -> Outcome {
    let blocks = blocks::<Flex>();
    let moved = |seed: u64, block: &ConvBlock<Flex>| BlockTangent {
        weight: drawn(seed, block.weight.dims()),
        bias: None,
        gamma: block.gamma.as_ref().map(|gamma| drawn(seed + 1, gamma.dims())),
        beta: None,
    };
    let moves = (50..).step_by(5).zip(&blocks).map(|(seed, block)| moved(seed, block));
    let direction = StackDirection { images: Some(drawn(3, IMAGES)), blocks: moves.collect() };
    let images = drawn::<Flex, 4>(1, IMAGES);
    let point = conv_stack_along(images, &blocks, Statistics::Batch, options(precision), direction);
    assert_eq!([point.features.dtype(), point.along.dtype()], [DType::F32; 2]);
    let grad = drawn::<Flex, 4>(2, point.features.dims());
    let found = point.gradients(grad, None, GradientsOf::ImagesAndBlocks);
    let images = found.images.expect("asked for");
    let weights = found.blocks.into_iter().map(|block| read(block.weight));
    [read(point.features), read(point.along), read(images)].into_iter().chain(weights).collect()
}

#[test]
fn directional_derivatives_are_of_the_same_precision() {
    let exact = along(Precision::F32);
    for (precision, rounding) in LOW {
        let found = along(precision);
        let error = distance(&found[0], &in_precision(precision)[0]);
        assert!(error < rounding / 4.0, "features in {precision:?}: {error:e}");
        for (index, (found, exact)) in found.iter().zip(&exact).enumerate() {
            let error = distance(found, exact);
            assert!(
                error > rounding / 2.0 && error < 0.5,
                "{index} in {precision:?}: {error:e} off f32"
            );
        }
    }
}
