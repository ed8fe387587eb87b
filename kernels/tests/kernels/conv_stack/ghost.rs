//! Ghost batches: each is normalised as if it were alone.

use std::collections::HashMap;

use burn::tensor::backend::AutodiffBackend;
use fewshot_kernels::conv_stack;

use super::network::Network;
use super::run::*;
use crate::judge::{assert_close, largest};

/// What the batches of a network give one by one, put together.
fn one_by_one<B: AutodiffBackend>(network: &Network, batches: usize) -> Outcome {
    let alone = (0..batches)
        .map(|index| run::<B>(&network.batch(index, batches), conv_stack, all_but_output_gradient));
    let mut alone = alone.collect::<Vec<_>>().into_iter();
    let mut all = alone.next().expect("a batch");
    for one in alone {
        all.features.extend(one.features);
        for (all, one) in all.moments.iter_mut().zip(one.moments) {
            all.iter_mut().zip(one).for_each(|(all, one)| all.extend(one));
        }
        for (name, gradient) in one.gradients {
            let all: &mut Vec<f32> = all.gradients.get_mut(&name).expect("the same names");
            match &*name {
                "input" => all.extend(gradient),
                _ => all.iter_mut().zip(gradient).for_each(|(all, one)| *all += one),
            }
        }
    }
    all
}

pub fn ghost_batches_are_batches_on_their_own<B: AutodiffBackend>() {
    for (network, batches) in [
        (Network::new(120, [15, 2, 9, 8], &[(5, 1, true), (3, 2, false)]), 3),
        (Network::new(121, [4, 5, 6, 7], &[(33, 1, false), (4, 1, true)]), 4),
        (Network::new(122, [40, 1, 8, 8], &[(4, 2, false), (4, 2, false), (4, 1, false)]), 2),
    ] {
        let what = format!("{batches} batches of {}", network.name);
        let expected = one_by_one::<B>(&network, batches);
        let network = network.with_ghost_batches(batches);
        let found = run::<B>(&network, conv_stack, all_but_output_gradient);
        let bound = VALUES * largest(&expected.features);
        assert_close(&format!("{what}, features"), &found.features, &expected.features, bound);
        assert_eq!(found.moments.len(), expected.moments.len(), "{what}");
        for (found, expected) in found.moments.iter().zip(&expected.moments) {
            let bound = VALUES * largest(&expected[1]).max(1.0);
            assert_close(&format!("{what}, means"), &found[0], &expected[0], bound);
            assert_close(&format!("{what}, variances"), &found[1], &expected[1], bound);
        }
        let gradients: &HashMap<_, _> = &expected.gradients;
        assert_gradients(
            &what,
            &found.gradients,
            gradients,
            GRADIENTS,
            vanishes_under_batch_statistics,
        );
    }
}

pub fn given_moments_are_those_of_all_ghost_batches<B: AutodiffBackend>() {
    let network = Network::new(123, [6, 2, 9, 8], &[(5, 1, true)]).with_running();
    let expected = run::<B>(&network, conv_stack, all_but_output_gradient);
    let network = network.with_ghost_batches(2);
    assert_eq!(run::<B>(&network, conv_stack, all_but_output_gradient), expected);
}
