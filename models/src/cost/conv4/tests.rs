use fewshot_kernels::Precision;

use super::*;

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
    let weights = 9 * 64 + 3 * 9 * 64 * 64;
    let saved = |n| Conv4Config::omniglot().cost(n, HOST).saved as usize;
    for n in [1, 80] {
        assert_eq!(saved(n), n * (inputs + convolutions) + weights);
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
fn workspace_on_a_device_is_gradients_and_parts_of_a_weight() {
    let device = Route::Device("CubeCL");
    let grads = |config: Conv4Config| config.cost(10, device).lane_workspace;
    // In the first block: those of both of its maps, and the images have none.
    assert_eq!(grads(Conv4Config::omniglot()), 10 * 64 * (784 + 196));
    assert_eq!(grads(Conv4Config::omniglot_strided()), 10 * 64 * 2 * 196);
    let cost = Conv4Config::omniglot().cost(10, device);
    assert!(cost.workspace >= cost.lane_workspace + 9 * 64 * 64);
}

#[test]
fn a_task_beside_others_has_less_workspace_on_a_processor() {
    let cost = Conv4Config::omniglot().cost(20, HOST);
    assert!(cost.lane_workspace < cost.workspace, "{cost:?}");
}

#[test]
fn a_gradient_that_is_differentiated_leaves_maps_of_its_own() {
    let intermediate_grads = |config: Conv4Config, route| config.cost(10, route).intermediate_grads;
    let device = Route::Device("CubeCL");
    let (convolved, out) = (784 + 196 + 49 + 9, 196 + 49 + 9 + 1);
    assert_eq!(intermediate_grads(Conv4Config::omniglot(), device), 10 * 64 * (convolved + out));
    let strided = 196 + 49 + 16 + 4;
    assert_eq!(intermediate_grads(Conv4Config::omniglot_strided(), device), 10 * 64 * 2 * strided);
    assert_eq!(intermediate_grads(Conv4Config::omniglot(), HOST), 10 * 64 * out);
}

#[test]
fn segments_end_where_maps_are_halved() {
    let deep = Conv4Config::mini_imagenet().with_blocks(8).with_halve_every(2);
    for route in [Route::Device("CubeCL"), HOST] {
        let segments = deep.segment_costs(10, route).expect("a formula");
        let inputs = [3 * 84 * 84, 64 * 42 * 42];
        let found: Vec<_> = segments.iter().map(|segment| segment.inputs).collect();
        assert_eq!(found, inputs.map(|n| 10 * n));
        let macs: u64 = segments.iter().map(|segment| segment.macs).sum();
        assert_eq!(macs, deep.cost(10, route).macs);
    }
    let layers = Route::Device("CubeCL");
    let segments = deep.segment_costs(10, layers).expect("a formula");
    let saved: u64 = segments.iter().map(|segment| segment.saved).sum();
    assert_eq!(saved, deep.cost(10, layers).saved);
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
fn low_precision_halves_what_an_accelerator_saves() {
    let config = Conv4Config::mini_imagenet();
    let low = config.clone().with_precision(Precision::MixedBf16);
    let device = Route::Device("CubeCL");
    assert_eq!(2 * low.cost(10, device).saved, config.cost(10, device).saved);
    // The fused stack rounds in place.
    assert_eq!(low.cost(10, HOST), config.cost(10, HOST));
}
