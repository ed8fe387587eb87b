use super::*;
use crate::Readout;

const HOST: Route = Route::Host("any");

#[test]
fn multiply_accumulates_are_those_counted_by_hand() {
    let macs = |config: &Conv4Config, n| config.cost(n, HOST).macs;
    let mini = 12_192_768 + 65_028_096 + 16_257_024 + 3_686_400;
    assert_eq!(macs(&Conv4Config::mini_imagenet(), 1), mini);
    assert_eq!(macs(&Conv4Config::mini_imagenet(), 80), 80 * mini);
    let omniglot = 451_584 + 7_225_344 + 1_806_336 + 331_776;
    assert_eq!(macs(&Conv4Config::omniglot(), 1), omniglot);
    let strided = 112_896 + 1_806_336 + 589_824 + 147_456;
    assert_eq!(macs(&Conv4Config::omniglot_strided(), 2), 2 * strided);
    let context = Conv4Config::omniglot_strided().with_context(100);
    assert_eq!(macs(&context, 2), 2 * strided + 12_800);
}

#[test]
fn the_largest_map_is_a_convolutions_output() {
    for (config, largest_map) in [
        (Conv4Config::mini_imagenet(), 64 * 84 * 84),
        (Conv4Config::omniglot_strided(), 64 * 14 * 14),
        (Conv4Config::omniglot_strided().with_channels(2), 28 * 28),
    ] {
        for route in [HOST, Route::Device("CubeCL")] {
            assert_eq!(config.cost(3, route).largest_map, 3 * largest_map);
        }
    }
}

#[test]
fn maps_that_are_not_halved_cost_as_much_as_those_before_them() {
    let deep = Conv4Config::mini_imagenet().with_blocks(8).with_halve_every(2);
    let sides = [84, 84, 42, 42, 21, 21, 10, 10].map(|side| side * side);
    let macs = 9 * 64 * (3 * sides[0] + 64 * sides[1..].iter().sum::<usize>());
    assert_eq!(deep.cost(2, HOST).macs, 2 * macs as u64);
    assert_eq!(deep.cost(2, HOST).outputs, 2 * 1600);
    let side_by_side = 2 * (84 * 84 + 42 * 42 + 21 * 21 + 10 * 10);
    let halved = 84 * 84 + 2 * 42 * 42 + 2 * 21 * 21 + 2 * 10 * 10 + 5 * 5;
    let saved = deep.cost(1, Route::Device("CubeCL")).saved;
    assert_eq!(saved, 64 * (side_by_side + halved));
    let strided = deep.with_downsampling(crate::Downsampling::Stride);
    let convolved = [84, 42, 42, 21, 21, 11, 11, 6].map(|side| side * side);
    let macs = 9 * 64 * (3 * convolved[0] + 64 * convolved[1..].iter().sum::<usize>());
    assert_eq!(strided.cost(1, HOST).macs, macs as u64);
}

#[test]
fn the_fused_stack_keeps_inputs_with_rings_and_convolutions() {
    // 64 channels are whole tiles of every instruction set. The first convolution is made
    // again: it has one channel to read.
    let inputs = 900 + 64 * (16 * 16 + 9 * 9 + 5 * 5) + 64;
    let convolutions = 64 * (14 * 14 + 7 * 7 + 3 * 3);
    // No derivative reads a bias.
    let parameters = 9 * 64 + 3 * 9 * 64 * 64 + 4 * 2 * 64;
    let statistics = 4 * 4 * 64;
    let saved = |n| Conv4Config::omniglot().cost(n, HOST).saved as usize;
    for n in [1, 80] {
        assert_eq!(saved(n), n * (inputs + convolutions) + parameters + statistics);
    }
}

#[test]
fn the_fused_stack_keeps_less_than_layers_do() {
    let config = Conv4Config::mini_imagenet();
    let saved = |route| config.cost(10, route).saved;
    let maps = 64 * (84 * 84 + 42 * 42 + 21 * 21 + 10 * 10);
    let halves = 64 * (42 * 42 + 21 * 21 + 10 * 10 + 5 * 5);
    assert_eq!(saved(Route::Device("CubeCL")), 10 * (maps + halves));
    assert_eq!(saved(Route::Reference), 10 * (4 * maps + 7 * halves));
    assert_eq!(saved(Route::Forced), saved(Route::Reference));
    assert!(2 * saved(HOST) < saved(Route::Device("CubeCL")));
}

#[test]
fn gradients_are_counted_where_most_is_there() {
    let activation_grads = |config: Conv4Config, route| config.cost(10, route).activation_grads;
    // In the first block: those of both of its maps, and the images have none.
    let device = Route::Device("CubeCL");
    assert_eq!(activation_grads(Conv4Config::omniglot(), device), 10 * 64 * (784 + 196));
    assert_eq!(activation_grads(Conv4Config::omniglot_strided(), device), 10 * 64 * 2 * 196);
    // What a block kept goes before those of larger maps come: most are there in the last one.
    assert_eq!(activation_grads(Conv4Config::omniglot(), Route::Reference), 10 * 64 * 9);
}

#[test]
fn a_gradient_that_is_differentiated_leaves_maps_of_its_own() {
    let intermediate_grads = |config: Conv4Config, route| config.cost(10, route).intermediate_grads;
    let device = Route::Device("CubeCL");
    let (convolved, out) = (784 + 196 + 49 + 9, 196 + 49 + 9 + 1);
    assert_eq!(intermediate_grads(Conv4Config::omniglot(), device), 10 * 64 * (convolved + out));
    let strided = 196 + 49 + 16 + 4;
    assert_eq!(intermediate_grads(Conv4Config::omniglot_strided(), device), 10 * 64 * 2 * strided);
    let stack = Conv4Config::omniglot().stack(10, HOST).expect("a fused stack");
    assert_eq!(
        intermediate_grads(Conv4Config::omniglot(), HOST),
        stack.intermediate_grad_floats() as u64
    );
    assert_eq!(Conv4Config::omniglot().cost(10, device).saved_tangents, 0);
}

#[test]
fn segments_end_where_maps_are_halved() {
    let deep = Conv4Config::mini_imagenet().with_blocks(8).with_halve_every(2);
    let layers = Route::Device("CubeCL");
    let found = deep.segment_costs(10, layers).expect("layers have formulas");
    let inputs = [3 * 84 * 84, 64 * 42 * 42];
    assert_eq!(found.iter().map(|part| part.inputs).collect::<Vec<_>>(), inputs.map(|n| 10 * n));
    assert_eq!(found.iter().map(|part| part.graph.outputs).sum::<u64>(), {
        10 * 64 * (42 * 42 + 5 * 5)
    });
    let whole = deep.cost(10, layers);
    let sum = |of: fn(&Cost) -> u64| found.iter().map(|part| of(&part.graph)).sum::<u64>();
    assert_eq!((sum(|cost| cost.saved), sum(|cost| cost.macs)), (whole.saved, whole.macs));
    assert!(found.iter().all(|part| part.left == 0));

    let host = deep.segment_costs(10, HOST).expect("the fused stack has formulas");
    let first = StackShape {
        n: 10,
        c: 3,
        h: 84,
        w: 84,
        blocks: vec![
            BlockShape { channels_out: 64, stride: 1, pool: false },
            BlockShape { channels_out: 64, stride: 1, pool: true },
        ],
    };
    let all = host.iter().map(|part| part.left).sum::<u64>();
    assert!(host[0].graph.saved as usize > first.saved_floats() && host[0].left < all);
    let low = deep.with_precision(Precision::MixedBf16);
    assert_eq!(low.segment_costs(1, layers), None);
    assert_eq!(low.segment_costs(10, HOST), Some(host));
}

#[test]
fn the_last_segment_keeps_no_more_than_one_before_it() {
    let starts = |config: &Conv4Config| config.segment_starts();
    let mini = Conv4Config::mini_imagenet();
    let deep = mini.clone().with_blocks(8).with_halve_every(2);
    assert_eq!(starts(&deep), [0, 2]);
    // The first convolution is made again anyway, and the others keep more than the image.
    assert_eq!(starts(&mini), [0, 1, 2]);
    assert_eq!(starts(&Conv4Config::omniglot_strided()), [0, 1, 2]);
    assert_eq!(starts(&mini.clone().with_blocks(2)), [0, 1]);
    assert_eq!(starts(&mini.with_blocks(1)), [0]);
    assert_eq!(starts(&deep.with_blocks(3)), [0, 2]);
}

#[test]
fn a_processors_stack_is_fused_whatever_the_precision() {
    let config = Conv4Config::omniglot();
    assert_eq!(config.stack(3, Route::Device("CubeCL")), None);
    let low = config.clone().with_precision(Precision::MixedBf16);
    assert!(config.stack(3, HOST).is_some());
    assert_eq!(low.stack(3, HOST), config.stack(3, HOST));
}

#[test]
fn low_precision_keeps_inputs_of_convolutions_in_its_own_type() {
    let config = Conv4Config::mini_imagenet();
    let low = config.clone().with_precision(Precision::MixedBf16);
    let saved = |config: &Conv4Config, route| config.cost(10, route).saved;
    let (image, inputs) = (3 * 84 * 84, 64 * (42 * 42 + 21 * 21 + 10 * 10));
    let convolved = 64 * (84 * 84 + 42 * 42 + 21 * 21 + 10 * 10);
    for (route, halved) in
        [(Route::Device("CubeCL"), inputs + convolved), (Route::Reference, inputs)]
    {
        assert_eq!(2 * saved(&low, route) + 10 * halved, 2 * saved(&config, route) + 10 * image);
    }
    // The fused stack rounds in place.
    assert_eq!(low.cost(10, HOST), config.cost(10, HOST));
}

#[test]
fn features_are_counted_as_the_network_has_them() {
    let outputs = |config: &Conv4Config| config.cost(3, HOST).outputs;
    assert_eq!(outputs(&Conv4Config::mini_imagenet()), 3 * 1600);
    let averaged = Conv4Config::mini_imagenet().with_readout(Readout::Average);
    assert_eq!(outputs(&averaged), 3 * 64);
    assert_eq!(outputs(&Conv4Config::omniglot_strided().with_channels(32)), 3 * 32);
}
