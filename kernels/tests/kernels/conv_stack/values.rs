//! Features and gradients are those of the reference.

use burn::tensor::backend::AutodiffBackend;
use fewshot_kernels::conv_stack::reference;
use fewshot_kernels::{Precision, conv_stack};

use super::leaves::Leaves;
use super::network::{Layout, Network, Spec};
use super::run::*;
use crate::judge::{Judge, assert_close, largest, read};

pub fn awkward_channel_counts_equal_the_reference<B: AutodiffBackend>() {
    for (channels, seed) in [(1, 1), (3, 2), (31, 3), (33, 4)] {
        let specs = [(channels, 1, true), (36 - channels, 1, true)];
        let network = Network::new(seed, [3, channels, 9, 11], &specs);
        assert_equal_under_both_statistics::<B>(network);
    }
}

pub fn odd_sizes_equal_the_reference<B: AutodiffBackend>() {
    let blocks: [&[Spec]; 4] = [
        &[(7, 1, true)],
        &[(7, 1, false)],
        &[(7, 2, false), (5, 1, true)],
        &[(9, 1, false), (4, 2, true), (6, 1, false)],
    ];
    for (seed, specs) in (10..).zip(blocks) {
        for (n, h, w) in [(1, 5, 7), (4, 5, 7), (2, 9, 11)] {
            let network = Network::new(seed, [n, 3, h, w], specs);
            assert_equal_under_both_statistics::<B>(network);
        }
    }
}

pub fn many_images_equal_the_reference<B: AutodiffBackend>() {
    for n in [8, 9, 10, 16, 17, 31, 70] {
        let network = Network::new(15, [n, 2, 5, 7], &[(4, 1, true), (4, 1, true)]);
        assert_equal_under_both_statistics::<B>(network);
        let network = Network::new(16, [n, 3, 7, 6], &[(5, 2, false), (18, 1, false)]);
        assert_equal_under_both_statistics::<B>(network);
    }
}

/// A device finds the moments of these in parts.
pub fn large_maps_equal_the_reference<B: AutodiffBackend>() {
    let network = Network::new(18, [2, 1, 186, 190], &[(2, 1, true)]);
    assert_equal_to_judge::<B>(&network, conv_stack);
}

pub fn the_order_of_images_changes_no_other_feature<B: AutodiffBackend>() {
    for n in [6, 10, 20] {
        let network = Network::new(17, [n, 2, 5, 7], &[(4, 1, true), (4, 1, true)]);
        for network in [network.clone(), network.with_running()] {
            let leaves = Leaves::<B::InnerBackend>::new(&network, |_| false);
            let blocks = leaves.blocks(&network);
            let features = |images| {
                let statistics = network.statistics();
                conv_stack(images, &blocks, statistics, network.options()).features
            };
            let images = leaves.images(&network);
            let expected = read(features(images.clone()).flip([0]));
            let found = read(features(images.flip([0])));
            let bound = VALUES * largest(&expected);
            assert_close(&network.name, &found, &expected, bound);
        }
    }
}

pub fn three_blocks_down_to_a_pixel_equal_the_reference<B: AutodiffBackend>() {
    let network = Network::new(20, [5, 1, 9, 11], &[(17, 1, true); 3]);
    assert_eq!(network.output_gradient.shape.as_slice(), [5, 17, 1, 1]);
    assert_equal_under_both_statistics::<B>(network);
}

pub fn one_row_and_one_column_equal_the_reference<B: AutodiffBackend>() {
    for (h, w) in [(1, 6), (6, 1), (1, 1)] {
        let network = Network::new(21, [9, 2, h, w], &[(5, 1, false), (3, 2, false)]);
        assert_equal_under_both_statistics::<B>(network);
    }
}

pub fn absent_vectors_equal_the_reference<B: AutodiffBackend>() {
    for keep in [[false; 3], [false, true, true], [true, false, true], [true, true, false]] {
        let network = Network::new(30, [3, 2, 7, 6], &[(5, 1, true), (6, 1, false)]);
        assert_equal_under_both_statistics::<B>(network.with_vectors(keep));
    }
}

pub fn extreme_gains_equal_the_reference<B: AutodiffBackend>() {
    // A gain of zero with a positive shift makes all values of a pool window equal.
    let gamma = [-1.5, 0.0, 0.0, 1e-12, -0.0, 2.0, -1e-3];
    let beta = [0.3, 0.4, -0.4, 0.0, 0.1, -0.2, 0.0];
    for (seed, pool) in [(40, true), (41, false)] {
        let network = Network::new(seed, [4, 3, 8, 9], &[(9, 1, pool), (7, 1, pool)]);
        assert_equal_under_both_statistics::<B>(network.with_affine(&gamma, &beta));
    }
}

pub fn permuted_tensors_equal_the_reference<B: AutodiffBackend>() {
    let specs = [(5, 1, true), (6, 2, false)];
    let network = Network::laid_out(Layout::Permuted, 50, [3, 4, 7, 8], &specs);
    assert_equal_under_both_statistics::<B>(network);
}

pub fn expanded_tensors_equal_the_reference<B: AutodiffBackend>() {
    let specs = [(5, 1, true), (6, 2, false)];
    let network = Network::laid_out(Layout::Expanded, 51, [3, 4, 7, 8], &specs);
    assert_equal_under_both_statistics::<B>(network);
}

pub fn epsilon_equals_the_reference<B: AutodiffBackend>() {
    let mut network = Network::new(52, [3, 2, 6, 6], &[(4, 1, true)]);
    network.epsilon = 0.5;
    assert_equal_under_both_statistics::<B>(network);
}

pub fn the_reference_is_that_of_flex<B: AutodiffBackend>() {
    let of = |seed, h, w, specs: &[Spec]| Network::new(seed, [2, 3, h, w], specs);
    let specs = [(3, 1, true), (2, 1, false)];
    let laid_out = |layout| Network::laid_out(layout, 63, [2, 3, 5, 7], &specs);
    for network in [
        of(60, 5, 7, &[(3, 1, true), (2, 1, true)]),
        of(61, 7, 4, &[(2, 1, false), (3, 1, true)]),
        // Candle cannot differentiate a stride over one odd and one even side.
        of(62, 5, 7, &[(2, 2, false), (3, 1, true)]),
        laid_out(Layout::Permuted),
        laid_out(Layout::Expanded),
    ] {
        assert_equal_to_judge::<B>(&network, reference::conv_stack);
        assert_equal_to_judge::<B>(&network.with_running(), reference::conv_stack);
    }
}

/// Maps of the low type between blocks, with sums in f32, are what a map in f32 is rounded to.
pub fn mixed_precision_rounds_as_the_reference_does<B: AutodiffBackend>() {
    let far = |a: &[f32], b: &[f32]| {
        let norm = |of: &mut dyn Iterator<Item = f32>| of.map(|v| v * v).sum::<f32>().sqrt();
        norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied())
    };
    let specs = [(8, 1, true), (6, 2, false), (5, 1, true)];
    let network = Network::new(40, [6, 3, 24, 22], &specs);
    for exact in [network.clone(), network.with_running()] {
        let low = Network { precision: Precision::MixedF16, ..exact.clone() };
        let found = run::<B>(&low, conv_stack, all_but_output_gradient);
        // Which adds up in f32; an accelerator's own convolution may not.
        let expected = run::<Judge>(&low, reference::conv_stack, all_but_output_gradient);
        let exact = run::<B>(&exact, conv_stack, all_but_output_gradient).features;
        let what = &low.name;
        // One number more or less that f32 rounds the other way.
        assert!(far(&found.features, &expected.features) < 1e-4, "{what}");
        assert!(far(&found.features, &exact) > 1e-4, "{what}: nothing was rounded");
        for (found, expected) in found.moments.iter().zip(&expected.moments) {
            assert!(far(&found.concat(), &expected.concat()) < 1e-4, "{what}");
        }
        for (name, expected) in &expected.gradients {
            if low.running.is_none() && vanishes_under_batch_statistics(name) {
                continue;
            }
            let error = far(&found.gradients[name], expected);
            assert!(error < 2e-3, "{what}, {name}: {error:e}");
        }
    }
}
