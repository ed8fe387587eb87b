use super::*;

#[test]
fn an_omniglot_image_becomes_64_features() {
    let config = Conv4Config::omniglot();
    let encoder: Conv4<Flex> = config.init(&Default::default());
    let features = encoder.encode(uniform(1, [3, 1, 28, 28]), BnStatistics::Running);
    assert_eq!((features.dims(), config.features()), ([3, 64], 64));
    assert_eq!(encoder.num_params(), 640 + 3 * 36_928 + 4 * 4 * 64);
    assert_eq!(encoder.architecture(), "conv4(1x28x28, 64 channels, max-pool)");
}

#[test]
fn a_mini_imagenet_image_becomes_1600_features() {
    let config = Conv4Config::mini_imagenet();
    let encoder: Conv4<Flex> = config.init(&Default::default());
    let features = encoder.encode(uniform(1, [1, 3, 84, 84]), BnStatistics::Running);
    assert_eq!((features.dims(), config.features()), ([1, 1600], 1600));
}

#[test]
fn eight_blocks_that_halve_in_turns_leave_as_much_as_four() {
    let config = Conv4Config::mini_imagenet().with_channels(2).with_blocks(8);
    assert!(!config.fits());
    let config = config.with_halve_every(2);
    for (downsampling, text, side) in
        [(Downsampling::MaxPool, "max-pool", 5), (Downsampling::Stride, "stride 2", 6)]
    {
        let config = config.clone().with_downsampling(downsampling);
        let encoder: Conv4<Flex> = config.init(&Default::default());
        let maps = encoder.forward(uniform(1, [1, 3, 84, 84]), BnStatistics::Batch);
        assert_eq!(maps.dims(), [1, 2, side, side]);
        assert_eq!(config.features(), 2 * side * side);
        let text = format!("conv8(3x84x84, 2 channels, {text} every 2 blocks)");
        assert_eq!(encoder.architecture(), text);
    }
}

#[test]
fn strides_round_up_and_pools_down() {
    let config = Conv4Config::new([1, 28, 9]).with_channels(2).with_blocks(3);
    for (downsampling, h, w) in [(Downsampling::MaxPool, 3, 1), (Downsampling::Stride, 4, 2)] {
        let config = config.clone().with_downsampling(downsampling);
        let encoder: Conv4<Flex> = config.init(&Default::default());
        let maps = encoder.forward(uniform(1, [2, 1, 28, 9]), BnStatistics::Batch);
        assert_eq!(maps.dims(), [2, 2, h, w]);
        let features = encoder.encode(uniform(1, [2, 1, 28, 9]), BnStatistics::Batch);
        assert_eq!(features.dims(), [2, config.features()]);
        assert_eq!(read(features), read(maps));
    }
}

#[test]
fn an_mlp_flattens_images() {
    let config = MlpConfig::new(12).with_layers(vec![5, 7]);
    let encoder: Mlp<Flex> = config.init(&Default::default());
    let images = uniform(2, [4, 3, 2, 2]);
    let features = encoder.encode(images.clone(), BnStatistics::Running);
    assert_eq!(features.dims(), [4, 7]);
    assert_eq!(read(features), read(encoder.forward(images.reshape([4, 12]))));
    assert_eq!(encoder.architecture(), "mlp(12-5-7)");
}

#[test]
fn sizes_that_no_network_has_are_refused_before_it_is_made() {
    let small = || Conv4Config::new([3, 16, 16]).with_channels(4);
    assert_eq!(small().check(), Ok(()));
    assert_eq!(Conv4Config::new([3, 2048, 2048]).check(), Ok(()));
    for size in [100_000, 1 << 32, 1 << 63, usize::MAX] {
        for sizes in [
            small().with_blocks(size),
            small().with_channels(1 << 31).with_blocks(2),
            Conv4Config::new([3, size, size]),
            Conv4Config::new([size, size, 16]),
        ] {
            assert!(sizes.check().is_err(), "{sizes}");
        }
    }
    let refused = |config: Conv4Config| config.check().unwrap_err().to_string();
    assert_eq!(refused(small().with_blocks(1001)), "a network has at most 1000 blocks, not 1001");
    let text = "5 blocks of 4 channels do not fit images of 3x16x16";
    assert_eq!(refused(small().with_blocks(5)), text);
    assert_eq!(small().with_channels(1 << 63).parameters(), None);
}

#[test]
fn parameters_are_counted_as_the_network_has_them() {
    for config in [
        Conv4Config::omniglot(),
        Conv4Config::new([3, 16, 16]).with_channels(5).with_blocks(3).with_context(7),
        Conv4Config::new([1, 16, 16]).with_channels(4).with_blocks(1).with_context(1),
    ] {
        let network: Conv4<Flex> = config.init(&Default::default());
        assert_eq!(config.parameters(), Some(network.num_params()), "{config}");
    }
}

#[test]
fn a_config_fits_as_long_as_a_pixel_is_left() {
    let fits = |config: Conv4Config| config.fits();
    assert!(fits(Conv4Config::omniglot()) && fits(Conv4Config::mini_imagenet()));
    assert!(fits(Conv4Config::new([1, 16, 31])));
    assert!(!fits(Conv4Config::new([1, 15, 31])));
    assert!(!fits(Conv4Config::new([1, 31, 15])));
    assert!(!fits(Conv4Config::omniglot().with_blocks(5)));
    let stride = Conv4Config::omniglot().with_downsampling(Downsampling::Stride);
    assert!(fits(stride.clone().with_blocks(9)));
    for broken in [
        Conv4Config::new([0, 28, 28]),
        Conv4Config::new([1, 0, 28]),
        Conv4Config::omniglot().with_channels(0),
        Conv4Config::omniglot().with_halve_every(0),
        stride.with_blocks(0),
    ] {
        assert!(!fits(broken.clone()), "{broken}");
    }
}

#[test]
fn a_network_without_a_pixel_left_is_refused() {
    let config = Conv4Config::omniglot().with_blocks(5);
    let panic = catch_unwind(|| config.init::<Flex>(&Default::default())).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert_eq!(message, "5 blocks do not fit images of 1x28x28");
}

#[test]
fn a_seed_gives_the_same_parameters_again() {
    fn drawn<M: ModuleSnapshot<Flex>>(
        seed: u64,
        init: impl Fn() -> M,
    ) -> BTreeMap<String, Vec<f32>> {
        Flex::seed(&Default::default(), seed);
        state(&init())
    }
    let conv4 = || Conv4Config::new([1, 8, 8]).with_blocks(2).init(&Default::default());
    assert_eq!(drawn(3, conv4), drawn(3, conv4));
    assert_ne!(drawn(3, conv4), drawn(4, conv4));
    let mlp = || MlpConfig::new(6).init(&Default::default());
    assert_eq!(drawn(3, mlp), drawn(3, mlp));
    assert_ne!(drawn(3, mlp), drawn(4, mlp));
}

#[test]
fn parameters_are_drawn_within_pytorchs_bounds() {
    let linear = LinearConfig::new(16, 500).init::<Flex>(&Default::default());
    let bias = linear.bias.expect("asked for by default");
    for values in [read(linear.weight.val()), read(bias.val())] {
        let largest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        assert!((0.24..=0.25).contains(&largest), "{largest}");
    }
}
