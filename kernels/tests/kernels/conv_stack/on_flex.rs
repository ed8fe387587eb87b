//! What needs one backend only.

use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::backend::{Autodiff, Flex};
use burn::tensor::{DType, FloatDType, Tensor};
use fewshot_kernels::{ConvBlock, Route, StackOptions, Statistics, conv_stack, route};

use super::leaves::Leaves;
use super::network::Network;
use super::run::*;
use crate::judge::{assert_close, largest, read, with_any_threads};

type Balanced = Autodiff<Flex, BalancedCheckpointing>;

#[test]
fn two_levels_of_autodiff_are_fused_and_three_are_not() {
    type Nested = Autodiff<Autodiff<Flex>>;
    assert!(matches!(route::<Flex>(), Route::Host(_)));
    assert!(matches!(route::<Autodiff<Flex>>(), Route::Host(_)));
    assert!(matches!(route::<Balanced>(), Route::Host(_)));
    assert!(matches!(route::<Nested>(), Route::Host(_)));
    assert!(matches!(route::<Autodiff<Balanced>>(), Route::Host(_)));
    assert_eq!(route::<Autodiff<Nested>>(), Route::Reference);
}

#[test]
fn checkpointing_changes_no_bit() {
    let network = Network::new(80, [3, 2, 9, 7], &[(5, 1, true), (4, 2, false)]);
    let found = run::<Balanced>(&network, conv_stack, all_but_output_gradient);
    let expected = run::<Autodiff<Flex>>(&network, conv_stack, all_but_output_gradient);
    assert_eq!(found, expected);
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let specs = [(33, 1, true), (32, 1, true), (17, 2, false)];
    for n in [1, 3, 21] {
        let network = Network::new(81, [n, 3, 15, 14], &specs);
        for network in [network.clone(), network.with_running()] {
            let found = with_any_threads(&format!("{n} images"), || {
                run::<Autodiff<Flex>>(&network, conv_stack, all_but_output_gradient)
            });
            assert_eq!(found.gradients.len(), 13);
        }
    }
}

#[test]
fn doubles_take_the_reference() {
    let network = Network::new(82, [2, 2, 6, 5], &[(3, 1, true)]);
    let leaves = Leaves::<Flex>::new(&network, |_| false);
    let double = |vector: Option<Tensor<Flex, 1>>| vector.map(|vector| vector.cast(DType::F64));
    let blocks = leaves.blocks(&network).into_iter().map(|block| ConvBlock {
        weight: block.weight.cast(DType::F64),
        bias: double(block.bias),
        gamma: double(block.gamma),
        beta: double(block.beta),
        ..block
    });
    let blocks: Vec<_> = blocks.collect();
    let images = leaves.images(&network).cast(DType::F64);
    let found = conv_stack(images, &blocks, Statistics::Batch, StackOptions::default()).features;
    assert_eq!(found.dtype(), DType::F64);
    let expected = read(leaves.forward(&network, conv_stack).features);
    let found = read(found.cast(DType::F32));
    assert_close("features", &found, &expected, VALUES * largest(&expected));
}

#[test]
fn half_precision_is_that_of_its_rounded_elements() {
    // A rounding of the images and one of the features, relative to the largest.
    for (dtype, bound) in [(FloatDType::BF16, 1.0 / 256.0), (FloatDType::F16, 1.0 / 2048.0)] {
        for running in [false, true] {
            let network = Network::new(83, [5, 3, 9, 8], &[(6, 1, true), (4, 1, false)]);
            let network = if running { network.with_running() } else { network };
            let leaves = Leaves::<Autodiff<Flex>>::new(&network, |_| true);
            let blocks = leaves.blocks(&network);
            let run = |images: Tensor<Autodiff<Flex>, 4>| {
                let statistics = network.statistics();
                conv_stack(images, &blocks, statistics, network.options())
            };
            let half = run(leaves.images(&network).cast(dtype));
            assert_eq!(half.features.dtype(), dtype.into());
            let rounded = leaves.images(&network).cast(dtype).cast(FloatDType::F32);
            let full = run(rounded);
            for (half, full) in half.moments.iter().zip(&full.moments) {
                assert_eq!(read(half.mean.clone()), read(full.mean.clone()));
            }
            let expected = read(full.features.clone());
            let found = half.features.clone().cast(FloatDType::F32);
            assert_close("features", &read(found.clone()), &expected, bound * largest(&expected));
            let gradients = |features| {
                let gradients = leaves.gradients(&leaves.loss(features).backward());
                let blocks = gradients.into_iter().filter(|(name, _)| name.contains("blocks"));
                read_all::<Flex>(blocks.collect())
            };
            let (found, expected) = (gradients(found), gradients(full.features));
            assert_eq!(found.len(), 8);
            assert_gradients("half", &found, &expected, 2.0 * bound, |name| {
                !running && vanishes_under_batch_statistics(name)
            });
        }
    }
}

#[test]
fn blocks_may_be_of_half_precision() {
    let network = Network::new(84, [3, 2, 7, 6], &[(5, 1, true)]);
    let leaves = Leaves::<Autodiff<Flex>>::new(&network, |_| false);
    let block = leaves.blocks(&network).remove(0);
    let weight = block.weight.cast(FloatDType::BF16).require_grad();
    let gamma = block.gamma.map(|gamma| gamma.cast(FloatDType::BF16).require_grad());
    let block = ConvBlock { weight: weight.clone(), gamma: gamma.clone(), ..block };
    let images = leaves.images(&network);
    let output = conv_stack(images, &[block], Statistics::Batch, network.options());
    assert_eq!(output.features.dtype(), DType::F32);
    let gradients = leaves.loss(output.features).backward();
    let weight = weight.grad(&gradients).expect("it is tracked");
    assert_eq!(weight.dtype(), DType::BF16);
    assert!(largest(&read(weight.cast(FloatDType::F32))) > 0.0);
    assert_eq!(gamma.and_then(|g| g.grad(&gradients)).map(|g| g.dtype()), Some(DType::BF16));
}
