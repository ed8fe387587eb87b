//! Tasks side by side, each with its context.

use super::*;

const TASKS: usize = 3;

/// The values of task after task.
fn side_by_side(states: &[State]) -> State {
    let all = |name: &String| states.iter().flat_map(|state| state[name].clone()).collect();
    states[0].keys().map(|name| (name.clone(), all(name))).collect()
}

fn assert_is_the_loop<E: Encoder<Once>>(module: E, images: Tensor<Once, 5>, tolerance: f32) {
    let seeds = (0..TASKS as u64).map(|task| 1000 * (task + 1));
    let states: Vec<_> = seeds.map(|seed| any_state::<Once>(module.clone(), seed)).collect();
    let lanes = with_state::<Once, _>(module.clone(), &side_by_side(&states));
    let features = lanes.encode_lanes(images.clone(), BnStatistics::Batch);
    let found = gradients(&lanes, &loss(features.clone()).backward());
    let found = found.into_iter().map(|(name, gradient)| (name, read(gradient)));

    let mut expected = Vec::new();
    let mut parts = Vec::new();
    for (task, state) in states.iter().enumerate() {
        let module = with_state::<Once, _>(module.clone(), state);
        let images = images.clone().slice(task..task + 1).flatten(0, 1);
        let features = module.encode(images, BnStatistics::Batch);
        expected.extend(read(features.clone()));
        let gradients = gradients(&module, &loss(features).backward());
        parts.push(gradients.into_iter().map(|(name, g)| (name, read(g))).collect::<State>());
    }
    assert_close("features", &read(features), &expected, tolerance);
    let expected = side_by_side(&parts);
    assert!(expected.keys().any(|name| name.ends_with("context")));
    for (name, found) in found {
        if !name.ends_with("conv.bias") {
            assert_not_flat(&name, &expected[&name]);
            assert_close(&name, &found, &expected[&name], 10.0 * tolerance);
        }
    }
}

#[test]
fn every_task_of_a_conv4_has_its_context() {
    for blocks in [2, 3] {
        let config = conv4_config().with_blocks(blocks).with_context(4);
        let images = uniform(31, [TASKS, 5, 2, 8, 9]);
        assert_is_the_loop(conv4::<Once>(&config), images, 1e-4);
    }
}

#[test]
fn every_task_of_an_mlp_has_its_context() {
    assert_is_the_loop(mlp::<Once>(2), uniform(32, [TASKS, 6, 4, 1, 1]), 1e-5);
}
