//! Second gradients of the stack.

use std::collections::HashMap;

use burn::backend::Autodiff;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use fewshot_kernels::conv_stack;
use fewshot_kernels::conv_stack::reference;

use super::leaves::{Leaves, Stack, lifted};
use super::network::{Layout, Network};
use super::run::*;
use crate::judge::{Judge, largest};
use crate::numbers::Numbers;

/// Gradients, by every leaf, of the sum of all first gradients times fixed directions.
fn second<B: AutodiffBackend>(
    network: &Network,
    stack: Stack<Autodiff<B>>,
) -> HashMap<String, Vec<f32>> {
    let inner = Leaves::<B>::new(network, |_| true);
    let outer = lifted(&inner);
    let loss = outer.loss(outer.forward(network, stack).features);
    let mut first = outer.gradients(&loss.backward());
    first.sort_by(|(a, _), (b, _)| a.cmp(b));
    let numbers = &mut Numbers(5);
    let products = first.into_iter().map(|(_, gradient)| {
        let direction = numbers.data(gradient.dims(), |x| x);
        (gradient * Tensor::from_data(direction, &Default::default())).sum()
    });
    let sum = Tensor::cat(products.collect(), 0).sum();
    read_all::<B::InnerBackend>(inner.gradients(&sum.backward()))
}

fn assert_second_equal<B: AutodiffBackend>(network: &Network) {
    let expected = second::<Judge>(network, reference::conv_stack);
    let mut found = second::<B>(network, conv_stack);
    let batch = network.running.is_none();
    // A zero may be left out, here and there.
    for (name, values) in expected.iter().filter(|(_, values)| largest(values) == 0.0) {
        found.entry(name.clone()).or_insert_with(|| vec![0.0; values.len()]);
    }
    let mut expected = expected;
    for (name, values) in found.iter().filter(|(_, values)| largest(values) == 0.0) {
        expected.entry(name.clone()).or_insert_with(|| vec![0.0; values.len()]);
    }
    assert_gradients(&network.name, &found, &expected, SECOND, |name| {
        batch && vanishes_under_batch_statistics(name)
    });
}

pub fn second_gradients_equal_the_reference<B: AutodiffBackend>() {
    for network in [
        Network::new(90, [3, 1, 9, 11], &[(5, 1, true), (7, 1, true)]),
        Network::new(91, [1, 31, 5, 4], &[(33, 1, false)]),
        Network::new(92, [9, 3, 7, 5], &[(4, 2, false), (3, 1, false)]),
        Network::new(93, [2, 33, 8, 9], &[(32, 1, true), (1, 1, false)]),
        Network::new(94, [4, 2, 1, 1], &[(5, 1, false)]),
        Network::new(95, [3, 2, 7, 6], &[(5, 1, true), (6, 1, false)]).with_vectors([false; 3]),
        Network::new(98, [15, 2, 7, 6], &[(5, 1, true), (6, 2, false)]).with_ghost_batches(3),
        // Of parts that end within a batch.
        Network::new(99, [40, 2, 7, 6], &[(5, 1, true), (6, 2, false)]).with_ghost_batches(4),
        Network::laid_out(Layout::Permuted, 96, [3, 4, 7, 8], &[(5, 1, true), (6, 2, false)]),
        Network::laid_out(Layout::Expanded, 97, [3, 4, 7, 8], &[(5, 1, true)]),
    ] {
        assert_second_equal::<B>(&network);
        assert_second_equal::<B>(&network.with_running());
    }
}

#[cfg(feature = "flex")]
mod on_flex {
    use burn::backend::Flex;
    use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
    use fewshot_kernels::{ConvBlock, Statistics, with_reference};

    use super::*;
    use crate::judge::{assert_close, read};

    /// First and second gradients where only some of images and weight are tracked at each level.
    fn mixed(tracked: [bool; 5]) -> Vec<Option<Vec<f32>>> {
        let [inner_x, inner_w, outer_x, outer_w, inner_g] = tracked;
        let network = Network::new(104, [2, 3, 6, 6], &[(4, 1, true)]).with_vectors([false; 3]);
        let leaves = Leaves::<Autodiff<Flex>>::new(&network, |name| match name {
            "input" => inner_x,
            "output_gradient" => inner_g,
            _ => inner_w,
        });
        let lift = |tensor: &Tensor<Autodiff<Flex>, 4>, tracked| {
            let lifted = Tensor::<Autodiff<Autodiff<Flex>>, 4>::from_inner(tensor.clone());
            if tracked { lifted.require_grad() } else { lifted }
        };
        let (x, weight) = (lift(&leaves.images, outer_x), lift(&leaves.weights[0], outer_w));
        let block = ConvBlock {
            weight: weight.clone(),
            bias: None,
            gamma: None,
            beta: None,
            stride: 1,
            pool: true,
        };
        let output = conv_stack(x.clone(), &[block], Statistics::Batch, network.options());
        let loss = (output.features * lift(&leaves.output_gradient, false)).sum();
        let mut total = loss.clone().inner();
        if outer_x || outer_w {
            let gradients = loss.backward();
            for gradient in [x.grad(&gradients), weight.grad(&gradients)].into_iter().flatten() {
                total = total + (gradient.clone() * gradient).sum();
            }
        }
        if !(inner_x || inner_w || inner_g) {
            return vec![None; 3];
        }
        let gradients = total.backward();
        let all = [&leaves.images, &leaves.weights[0], &leaves.output_gradient];
        all.map(|leaf| leaf.grad(&gradients).map(read)).into()
    }

    #[test]
    fn tensors_may_be_tracked_at_either_level() {
        for bits in 0..32 {
            let tracked = [0, 1, 2, 3, 4].map(|bit| bits >> bit & 1 == 1);
            let (found, expected) = (mixed(tracked), with_reference(|| mixed(tracked)));
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.is_some(), expected.is_some(), "{tracked:?}");
                if let (Some(found), Some(expected)) = (found, expected) {
                    let bound = SECOND * largest(expected).max(1e-2);
                    assert_close(&format!("{tracked:?}"), found, expected, bound);
                }
            }
        }
    }

    #[test]
    fn checkpointing_changes_no_second_gradient() {
        let network = Network::new(105, [3, 2, 7, 6], &[(5, 1, true), (4, 2, false)]);
        let expected = second::<Autodiff<Flex>>(&network, conv_stack);
        let found = second::<Autodiff<Flex, BalancedCheckpointing>>(&network, conv_stack);
        assert_eq!(found, expected);
    }
}
