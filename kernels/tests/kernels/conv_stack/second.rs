//! Second gradients, and Jacobian-vector and Hessian-vector products of the stack.

use std::collections::HashMap;

use burn::backend::{Autodiff, Flex};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot_kernels::conv_stack::reference;
use fewshot_kernels::{
    BlockTangent, GradientsOf, StackTangent, Statistics, conv_stack, conv_stack_jvp, with_reference,
};

use super::leaves::{Leaves, Stack, VECTORS, lifted};
use super::network::{Layout, Network};
use super::run::*;
use crate::judge::{Judge, largest, read};
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
        Network::laid_out(Layout::Permuted, 96, [3, 4, 7, 8], &[(5, 1, true), (6, 2, false)]),
        Network::laid_out(Layout::Expanded, 97, [3, 4, 7, 8], &[(5, 1, true)]),
    ] {
        assert_second_equal::<B>(&network);
        assert_second_equal::<B>(&network.with_running());
    }
}

fn draw<B: Backend, const D: usize>(numbers: &mut Numbers, like: &Tensor<B, D>) -> Tensor<B, D> {
    Tensor::from_data(numbers.data(like.dims(), |x| x), &like.device())
}

pub fn no_part_of_a_jvp_is_tracked<B: AutodiffBackend>() {
    let network = Network::new(103, [2, 1, 6, 5], &[(3, 1, true)]);
    let leaves = Leaves::<B>::new(&network, |_| true);
    let blocks = leaves.blocks(&network);
    let tangents = blocks.iter().map(|block| BlockTangent {
        weight: block.weight.clone(),
        bias: block.bias.clone(),
        gamma: block.gamma.clone(),
        beta: block.beta.clone(),
    });
    let tangent = StackTangent { images: Some(leaves.images.clone()), blocks: tangents.collect() };
    let images = leaves.images(&network);
    let jvp = conv_stack_jvp(images, &blocks, Statistics::Batch, network.options(), tangent);
    let found = jvp.hvp(leaves.output_gradient.clone(), None, GradientsOf::Blocks);
    let sum = jvp.features.sum() + jvp.tangent.sum() + found.blocks[0].weight.clone().sum();
    // Something tracked, so that there is a graph to go back through.
    let anchor = Tensor::<B, 1>::ones([1], &Default::default()).require_grad();
    let gradients = (sum + anchor.clone()).backward();
    assert!(anchor.grad(&gradients).is_some());
    assert!(leaves.gradients(&gradients).is_empty());
}

/// What `conv_stack_jvp` finds: features, their tangent, and the tangents of the gradients.
fn jvp_and_hvp<B: Backend>(network: &Network, still: bool) -> [HashMap<String, Vec<f32>>; 2] {
    let leaves = Leaves::<B>::new(network, |_| false);
    let (images, blocks) = (leaves.images(network), leaves.blocks(network));
    let numbers = &mut Numbers(6);
    let images_tangent = draw(numbers, &images);
    let grad_tangent = draw(numbers, &leaves.output_gradient);
    let tangents = blocks.iter().map(|block| {
        let mut vector =
            |vector: &Option<Tensor<B, 1>>| vector.as_ref().map(|vector| draw(numbers, vector));
        let [bias, gamma, beta] = [&block.bias, &block.gamma, &block.beta].map(&mut vector);
        let weight = draw(numbers, &block.weight);
        BlockTangent { weight, bias, gamma, beta }
    });
    let tangent =
        StackTangent { images: (!still).then_some(images_tangent), blocks: tangents.collect() };
    let statistics = network.statistics();
    let jvp = conv_stack_jvp(images, &blocks, statistics, network.options(), tangent);
    let values = [("features", jvp.features.clone()), ("tangent", jvp.tangent.clone())];
    let values = values.map(|(name, tensor)| (name.to_string(), read(tensor)));
    let grad = leaves.output_gradient.clone();
    let of = if still { GradientsOf::Blocks } else { GradientsOf::ImagesAndBlocks };
    let found = jvp.hvp(grad, (!still).then_some(grad_tangent), of);
    assert_eq!(found.images.is_some(), !still);
    let mut gradients = vec![("images".to_string(), found.images.map(read))];
    for (k, (block, given)) in found.blocks.into_iter().zip(&blocks).enumerate() {
        gradients.push((format!("{k}.conv.weight"), Some(read(block.weight))));
        let present = [&given.bias, &given.gamma, &given.beta].map(Option::is_some);
        let vectors = [block.bias, block.gamma, block.beta];
        for ((vector, present), name) in vectors.into_iter().zip(present).zip(VECTORS) {
            assert_eq!(vector.is_some(), present, "{k}.{name}");
            gradients.push((format!("{k}.{name}"), vector.map(read)));
        }
    }
    let gradients = gradients.into_iter().filter_map(|(name, values)| Some((name, values?)));
    [values.into_iter().collect(), gradients.collect()]
}

pub fn jvps_and_hvps_equal_two_levels_of_autodiff<B: AutodiffBackend>() {
    for network in [
        Network::new(100, [3, 1, 9, 11], &[(5, 1, true), (7, 1, true)]),
        Network::new(101, [2, 33, 8, 7], &[(32, 1, false), (3, 2, false)]),
        Network::new(102, [3, 2, 7, 6], &[(5, 1, true)]).with_vectors([true, false, false]),
    ] {
        for network in [network.clone(), network.with_running()] {
            for still in [true, false] {
                let expected = with_reference(|| jvp_and_hvp::<Flex>(&network, still));
                let found = jvp_and_hvp::<B::InnerBackend>(&network, still);
                let batch = network.running.is_none();
                let vanishes = |name: &str| batch && vanishes_under_batch_statistics(name);
                assert_gradients(&network.name, &found[0], &expected[0], GRADIENTS, |_| false);
                assert_gradients(&network.name, &found[1], &expected[1], SECOND, vanishes);
            }
        }
    }
}

#[cfg(feature = "flex")]
mod on_flex {
    use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
    use fewshot_kernels::ConvBlock;

    use super::*;
    use crate::judge::assert_close;

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
