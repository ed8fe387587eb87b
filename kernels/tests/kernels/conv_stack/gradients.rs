//! What is tracked has its gradient, and nothing else.

use std::collections::HashMap;

use burn::tensor::backend::AutodiffBackend;
use fewshot_kernels::{Statistics, conv_stack};

use super::leaves::Leaves;
use super::network::Network;
use super::run::*;
use crate::judge::{assert_close, largest, read};

pub fn frozen_tensors_have_no_gradient_and_change_no_other<B: AutodiffBackend>() {
    let network = Network::new(70, [3, 2, 6, 7], &[(4, 1, true), (3, 1, false)]);
    let all = run::<B>(&network, conv_stack, all_but_output_gradient);
    assert_eq!(all.gradients.len(), 9);
    for part in ["input", "blocks", "conv.weight", "blocks.1.norm.bias", "blocks.0.conv.bias"] {
        let some = run::<B>(&network, conv_stack, |name| name.contains(part));
        let expected = all.gradients.clone().into_iter();
        let expected: HashMap<_, _> = expected.filter(|(name, _)| name.contains(part)).collect();
        assert!(!expected.is_empty());
        assert_gradients(part, &some.gradients, &expected, 1e-6, vanishes_under_batch_statistics);
        assert_eq!(some.features, all.features);
    }
}

pub fn features_without_autodiff_are_those_with_it<B: AutodiffBackend>() {
    let of = |n| Network::new(71, [n, 2, 6, 7], &[(4, 1, true), (3, 1, false)]);
    for network in [of(3), of(3).with_running(), of(25), of(25).with_running()] {
        let tracked = run::<B>(&network, conv_stack, all_but_output_gradient);
        let plain = Leaves::<B::InnerBackend>::new(&network, |_| false);
        let plain = plain.forward(&network, conv_stack);
        let scale = VALUES * largest(&tracked.features);
        assert_close("features", &read(plain.features), &tracked.features, scale);
        assert_eq!(plain.moments.len(), tracked.moments.len());
        for (found, expected) in plain.moments.into_iter().zip(&tracked.moments) {
            assert_close("mean", &read(found.mean), &expected[0], VALUES);
            assert_close("variance", &read(found.variance), &expected[1], 3.0 * VALUES);
        }
    }
}

pub fn graphs_that_share_parameters_are_differentiated_one_by_one<B: AutodiffBackend>() {
    let specs = [(4, 1, true), (3, 1, false)];
    let first = Network::new(72, [3, 2, 6, 7], &specs);
    let second = Network { images: Network::new(73, [3, 2, 6, 7], &specs).images, ..first.clone() };
    let alone = [&first, &second]
        .map(|network| run::<B>(network, conv_stack, |name| name.starts_with("blocks")));
    assert_ne!(alone[0].gradients, alone[1].gradients);

    let leaves = Leaves::<B>::new(&first, |name| name.starts_with("blocks"));
    let other = Leaves::<B>::new(&second, |_| false);
    let blocks = leaves.blocks(&first);
    let loss = |images| {
        let output = conv_stack(images, &blocks, Statistics::Batch, first.options());
        leaves.loss(output.features)
    };
    let losses = [loss(leaves.images(&first)), loss(other.images(&second))];
    for (loss, alone) in losses.iter().zip(&alone) {
        let found = read_all::<B::InnerBackend>(leaves.gradients(&loss.clone().backward()));
        let expected = &alone.gradients;
        assert_gradients("one of two", &found, expected, 1e-6, vanishes_under_batch_statistics);
    }

    let both = loss(leaves.images(&first)) + loss(other.images(&second));
    let found = read_all::<B::InnerBackend>(leaves.gradients(&both.backward()));
    let sum = alone[0].gradients.iter().map(|(name, values)| {
        let other = &alone[1].gradients[name];
        (name.clone(), values.iter().zip(other).map(|(one, two)| one + two).collect())
    });
    assert_gradients("sum", &found, &sum.collect(), GRADIENTS, vanishes_under_batch_statistics);
}

pub fn moments_are_detached<B: AutodiffBackend>() {
    let network = Network::new(74, [3, 2, 6, 7], &[(4, 1, true)]);
    let leaves = Leaves::<B>::new(&network, |_| true);
    let output = leaves.forward(&network, conv_stack);
    let [moments] = &output.moments[..] else { panic!("one block has one pair of moments") };
    // The moments take part in the sum; their share of the gradient would show.
    let sum = moments.mean.clone().sum() + moments.variance.clone().sum();
    let loss = leaves.loss(output.features) + sum * 1000.0;
    let found = read_all::<B::InnerBackend>(leaves.gradients(&loss.backward()));
    let expected = run::<B>(&network, conv_stack, |_| true).gradients;
    assert_gradients("features", &found, &expected, 1e-6, vanishes_under_batch_statistics);
}
