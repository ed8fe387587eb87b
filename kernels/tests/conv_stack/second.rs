//! Second gradients, and the stack along a direction.

use fewshot_kernels::{BlockTangent, StackDirection, conv_stack_along};

use super::*;

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
    // A zero may be left out.
    for (name, values) in expected.iter().filter(|(_, values)| largest(values) == 0.0) {
        found.entry(name.clone()).or_insert_with(|| vec![0.0; values.len()]);
    }
    let expected: HashMap<_, _> =
        expected.into_iter().filter(|(name, _)| found.contains_key(name)).collect();
    assert!(expected.len() > network.layers.len());
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

/// What `conv_stack_along` finds: features, their change, and the changes of the gradients.
fn along<B: Backend>(network: &Network, still: bool) -> [HashMap<String, Vec<f32>>; 2] {
    let leaves = Leaves::<B>::new(network, |_| false);
    let (images, blocks) = (leaves.images(network), leaves.blocks(network));
    let numbers = &mut Numbers(6);
    let moved = draw(numbers, &images);
    let change = draw(numbers, &leaves.output_gradient);
    let tangents = blocks.iter().map(|block| {
        let mut vector =
            |vector: &Option<Tensor<B, 1>>| vector.as_ref().map(|vector| draw(numbers, vector));
        let [bias, gamma, beta] = [&block.bias, &block.gamma, &block.beta].map(&mut vector);
        let weight = draw(numbers, &block.weight);
        BlockTangent { weight, bias, gamma, beta }
    });
    let direction =
        StackDirection { images: (!still).then_some(moved), blocks: tangents.collect() };
    let statistics = network.statistics();
    let point = conv_stack_along(images, &blocks, statistics, network.options(), direction);
    let values = [("features", point.features.clone()), ("along", point.along.clone())];
    let values = values.map(|(name, tensor)| (name.to_string(), read(tensor)));
    let grad = leaves.output_gradient.clone();
    let found = point.gradients(grad, (!still).then_some(change), !still);
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

pub fn directional_derivatives_equal_two_levels_of_autodiff<B: AutodiffBackend>() {
    for network in [
        Network::new(100, [3, 1, 9, 11], &[(5, 1, true), (7, 1, true)]),
        Network::new(101, [2, 33, 8, 7], &[(32, 1, false), (3, 2, false)]),
        Network::new(102, [3, 2, 7, 6], &[(5, 1, true)]).with_vectors([true, false, false]),
    ] {
        for network in [network.clone(), network.with_running()] {
            for still in [true, false] {
                // On an autodiff backend the reference answers.
                let expected = along::<Autodiff<Flex>>(&network, still);
                let found = along::<B::InnerBackend>(&network, still);
                let batch = network.running.is_none();
                let vanishes = |name: &str| batch && vanishes_under_batch_statistics(name);
                assert_gradients(&network.name, &found[0], &expected[0], GRADIENTS, |_| false);
                assert_gradients(&network.name, &found[1], &expected[1], SECOND, vanishes);
            }
        }
    }
}
