use super::*;

#[test]
fn only_tracking_moves_a_networks_running_averages() {
    let encoder = small_conv4();
    let images = || uniform(8, [4, 2, 8, 9]) * 2.0;
    let before = state(&encoder);
    let batch = encoder.encode(images(), BnStatistics::Batch).into_data();
    let running = encoder.encode(images(), BnStatistics::Running).into_data();
    assert_ne!(batch, running);
    assert_eq!(state(&encoder), before);

    let tracked = encoder.encode(images(), BnStatistics::Track).into_data();
    assert_eq!(tracked, batch);
    let after = state(&encoder);
    assert_eq!(running_only(&before).len(), 4);
    for name in before.keys() {
        assert_eq!(before[name] != after[name], name.contains("running"), "{name}");
    }
    assert_ne!(encoder.encode(images(), BnStatistics::Running).into_data(), running);
}

#[test]
fn a_layer_averages_the_biased_variance() {
    let layer = BatchNormConfig::new(1).with_momentum(0.25).init::<Flex>(&Default::default());
    let x = Tensor::from_floats([[[[1.0, 3.0]]], [[[5.0, 7.0]]]], &Default::default());
    layer.forward(x.clone(), BnStatistics::Batch);
    layer.forward(x.clone(), BnStatistics::Running);
    assert_eq!(read(layer.running().mean), [0.0]);
    assert_eq!(read(layer.running().variance), [1.0]);
    layer.forward(x, BnStatistics::Track);
    assert_close("mean", &read(layer.running().mean), &[1.0], 1e-6);
    assert_close("variance", &read(layer.running().variance), &[0.75 + 0.25 * 5.0], 1e-6);
}

#[test]
fn what_a_clone_tracks_stays_with_the_clone() {
    let original = small_conv4();
    let images = || uniform(9, [4, 2, 8, 9]) * 2.0;
    let clone = original.clone();
    let before = state(&original);
    assert_eq!(state(&clone), before);
    clone.encode(images(), BnStatistics::Track);
    assert_eq!(state(&original), before);
    let tracked_once = state(&clone);
    assert_ne!(tracked_once, before);
    original.encode(images(), BnStatistics::Track);
    assert_eq!(state(&clone), tracked_once);
    assert_eq!(state(&original), tracked_once);
}

#[test]
fn an_inner_module_has_the_running_averages_and_keeps_its_own() {
    let config = Conv4Config::new([2, 8, 9]).with_channels(3).with_blocks(2);
    let outer: Conv4<Once> = config.init(&Default::default());
    outer.encode(uniform(10, [4, 2, 8, 9]), BnStatistics::Track);
    let inner = outer.valid();
    let before = state(&outer);
    assert_eq!(state(&inner), before);
    inner.encode(uniform(11, [4, 2, 8, 9]), BnStatistics::Track);
    assert_ne!(state(&inner), before);
    assert_eq!(state(&outer), before);
}

#[test]
fn running_averages_survive_a_record() {
    let encoder = small_conv4();
    encoder.encode(uniform(12, [4, 2, 8, 9]), BnStatistics::Track);
    let config = Conv4Config::new([2, 8, 9]).with_channels(3).with_blocks(2);
    let other: Conv4<Flex> = config.init(&Default::default());
    assert_ne!(state(&other), state(&encoder));
    let other = other.load_record(encoder.clone().into_record());
    assert_eq!(state(&other), state(&encoder));
}

#[test]
fn running_averages_have_no_gradient() {
    let config = Conv4Config::new([2, 8, 9]).with_channels(3).with_blocks(2);
    let encoder: Conv4<Once> = config.init(&Default::default());
    for statistics in [BnStatistics::Track, BnStatistics::Batch, BnStatistics::Running] {
        let features = encoder.encode(uniform(13, [4, 2, 8, 9]), statistics);
        let gradients = features.powi_scalar(2).sum().backward();
        assert_eq!(GradientsParams::from_grads(gradients, &encoder).len(), 8);
    }
}
