//! An [`AnyEncoder`] of a network is this network.

use fewshot_models::{
    AnyEncoder, EncoderConfig, Normalization, Readout, ResNet12, ResNet12Config, VitConfig,
    VitFamily, WideResNetConfig,
};

use super::*;

/// Networks of which a pass takes no time, with images that they take.
fn configs() -> Vec<EncoderConfig> {
    let named = |name, image| EncoderConfig::named(name, image).unwrap();
    let conv4 = Conv4Config::new([1, 16, 16]).with_channels(3);
    vec![conv4.into(), named("resnet10", [1, 16, 16]), named("efficientnet-lite0", [3, 32, 32])]
}

fn narrow() -> ResNet12<Flex> {
    ResNet12Config::new().with_widths([4, 6, 8, 10]).init(&Default::default())
}

fn recorded<R: Record<Flex>>(record: R) -> Vec<u8> {
    let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::default();
    Recorder::<Flex>::record(&recorder, record, ()).unwrap()
}

fn loaded<R: Record<Flex>>(bytes: Vec<u8>) -> R {
    let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::default();
    Recorder::<Flex>::load(&recorder, bytes, &Default::default()).unwrap()
}

#[test]
fn features_are_those_of_the_network() {
    let (network, any) = (narrow(), AnyEncoder::from(narrow()));
    let any = any.load_record(AnyEncoder::from(network.clone()).into_record());
    let images = || uniform(3, [4, 3, 16, 16]);
    for statistics in [BnStatistics::Track, BnStatistics::Batch, BnStatistics::Running] {
        let features = read(any.encode(images(), statistics));
        assert_eq!(features, read(network.encode(images(), statistics)));
    }
    let by_segments = |encoder: &dyn Fn(usize, Tensor<Flex, 4>) -> Tensor<Flex, 4>| {
        (0..4).fold(images(), |x, index| encoder(index, x))
    };
    let segments = by_segments(&|index, x| any.forward_segment(index, x, BnStatistics::Batch));
    assert_eq!(any.segments(), 4);
    assert_eq!(read(segments), read(network.encode(images(), BnStatistics::Batch)));
    assert_eq!(any.architecture(), network.architecture());
    assert_eq!(Module::<Flex>::num_params(&any), Module::<Flex>::num_params(&network));
    assert_eq!(state(&any), state(&network));
    assert_eq!((any.has_lanes(), any.draws()), (network.has_lanes(), network.draws()));
}

#[test]
fn features_of_a_residual_network_are_all_pixels_of_its_last_maps_or_their_means() {
    let device = Default::default();
    let narrow: AnyEncoder<Flex> = narrow().into();
    let wide = WideResNetConfig::new().with_blocks(2).with_width(1).init::<Flex>(&device).into();
    let small = |name| EncoderConfig::named(name, [3, 40, 34]).unwrap();
    let [resnet12, wrn] = ["resnet12", "wrn-28-10"].map(small);
    for (config, encoder, channels) in [
        (resnet12, narrow, 10),
        (wrn, wide, 64),
        (small("resnet10"), small("resnet10").init(&device), 512),
    ] {
        let flat = config.clone().with_readout(Readout::Flatten);
        assert_eq!((flat.check(), config.maps()), (Ok(()), None));
        let [_, height, width] = flat.maps().unwrap();
        assert_eq!(flat.features(), flat.maps().unwrap().iter().product::<usize>());
        let (images, statistics) = (uniform(3, [2, 3, 40, 34]), BnStatistics::Batch);
        let means = encoder.encode(images.clone(), statistics);
        let encoder = encoder.with_readout(Readout::Flatten);
        let features = encoder.encode(images.clone(), statistics);
        let maps = features.clone().reshape([2, channels, height * width]);
        let of_maps = maps.mean_dim(2).reshape([2, channels]);
        of_maps.into_data().assert_approx_eq::<f32>(&means.into_data(), Tolerance::absolute(1e-5));
        let segments = (0..encoder.segments())
            .fold(images.clone(), |x, index| encoder.forward_segment(index, x, statistics));
        assert_eq!(read(segments), read(features.clone()), "{}", config.name());
        let tasks = encoder.encode_tasks(images.unsqueeze(), statistics);
        assert_eq!(read(tasks), read(features));
    }
    let flat = EncoderConfig::named("efficientnet-lite0", [3, 32, 32]).unwrap();
    let text = flat.with_readout(Readout::Flatten).check().unwrap_err().to_string();
    assert!(text.starts_with("efficientnet-lite0 has no maps"), "{text}");
}

#[test]
fn segments_one_after_the_other_are_the_network() {
    let device = Default::default();
    let wide = WideResNetConfig::new().with_blocks(2).with_width(1).init::<Flex>(&device);
    let vit = VitConfig::new(VitFamily::DinoV2, 4, 3, 8, 2, 2).init::<Flex>(&device);
    let lite = EncoderConfig::named("efficientnet-lite0", [3, 32, 32]).unwrap();
    let resnet = EncoderConfig::named("resnet18", [3, 32, 32]).unwrap();
    for (encoder, count) in [
        (AnyEncoder::from(narrow()), 4),
        (wide.into(), 6),
        (vit.into(), 2),
        (lite.init(&device), 16),
        (resnet.init(&device), 8),
    ] {
        let name = encoder.architecture();
        assert_eq!(encoder.segments(), count, "{name}");
        for statistics in [BnStatistics::Batch, BnStatistics::Running] {
            let images = uniform(3, [2, 3, 32, 32]);
            let features = read(encoder.encode(images.clone(), statistics));
            let segments =
                (0..count).fold(images, |x, index| encoder.forward_segment(index, x, statistics));
            assert_eq!(segments.dims()[2..], [1, 1], "{name}");
            assert_eq!(read(segments), features, "{name}");
        }
    }
}

#[test]
fn lanes_are_those_of_the_network() {
    let network: Conv4<Flex> =
        Conv4Config::new([2, 8, 9]).with_channels(3).with_blocks(2).init(&Default::default());
    let any = AnyEncoder::from(network.clone());
    let tasks = || uniform(5, [1, 3, 2, 8, 9]);
    let [own, other] = [
        network.encode_lanes(tasks(), BnStatistics::Batch),
        any.encode_lanes(tasks(), BnStatistics::Batch),
    ];
    assert_eq!(read(own), read(other));
    assert!(any.has_lanes());
}

#[test]
fn the_record_of_a_conv4_is_its_own_in_both_directions() {
    let config = Conv4Config::new([1, 16, 16]).with_channels(3).with_context(2);
    let network: Conv4<Flex> = config.init(&Default::default());
    let bytes = recorded(network.clone().into_record());
    assert_eq!(recorded(AnyEncoder::from(network.clone()).into_record()), bytes);
    let fresh = AnyEncoder::from(config.init::<Flex>(&Default::default()));
    let any = fresh.load_record(loaded(bytes));
    let images = || uniform(3, [2, 1, 16, 16]);
    let features = read(any.encode(images(), BnStatistics::Running));
    assert_eq!(features, read(network.encode(images(), BnStatistics::Running)));
}

#[test]
fn every_record_reads_as_it_is_written() {
    for config in configs() {
        let device = Default::default();
        let any = config.init::<Flex>(&device);
        let bytes = recorded(any.clone().into_record());
        let other = config.init::<Flex>(&device).load_record(loaded(bytes.clone()));
        assert_eq!(recorded(other.into_record()), bytes, "{}", config.name());
    }
}

#[test]
fn a_level_of_autodiff_changes_nothing_but_gradients() {
    for config in configs() {
        let any = config.init::<Once>(&Default::default());
        let [channels, height, width] = config.image();
        let images = Tensor::<Flex, 4>::ones([2, channels, height, width], &Default::default());
        let inner = any.valid();
        let features = read(inner.encode(images.clone(), BnStatistics::Running));
        let again = AnyEncoder::<Once>::from_inner(inner);
        let tracked = again.encode(Tensor::from_inner(images), BnStatistics::Running);
        let same: Vec<f32> = tracked.inner().into_data().into_vec().unwrap();
        // EfficientNet's plain and differentiated operations differ in their order.
        let off = same.iter().zip(&features).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-4, "{} off by {off}", config.name());
    }
}

#[test]
fn normalisation_is_that_of_a_picture_that_is_prepared() {
    let normalization = Normalization { mean: [0.2, 0.5, 0.7], deviation: [0.5, 0.25, 2.0] };
    let network = narrow();
    let any = AnyEncoder::from(network.clone()).with_normalization(Some(normalization));
    let images = uniform(3, [2, 3, 16, 16]);
    let each = |channel: usize| {
        let (mean, deviation) = (normalization.mean[channel], normalization.deviation[channel]);
        (images.clone().narrow(1, channel, 1) - mean) / deviation
    };
    let prepared = Tensor::cat((0..3).map(each).collect(), 1);
    let expected = read(network.encode(prepared.clone(), BnStatistics::Batch));
    assert_eq!(read(any.encode(images.clone(), BnStatistics::Batch)), expected);
    let segments =
        (0..4).fold(images.clone(), |x, index| any.forward_segment(index, x, BnStatistics::Batch));
    assert_eq!(read(segments), expected);
    let tasks = any.encode_tasks(images.unsqueeze(), BnStatistics::Batch);
    assert_eq!(read(tasks), expected);
}

#[test]
fn averages_of_images_are_those_that_another_pass_leaves_where_they_are() {
    for config in configs() {
        let any = config.init::<Flex>(&Default::default());
        let [channels, height, width] = config.image();
        let images = uniform(3, [3, channels, height, width]);
        let before = running_only(&state(&any));
        let averaged = any.with_averages_of(images.clone());
        let averages = running_only(&state(&averaged));
        averaged.encode(images, BnStatistics::Track);
        for (name, again) in running_only(&state(&averaged)) {
            assert_close(&name, &again, &averages[&name], 1e-4);
            assert_ne!(averages[&name], before[&name], "{name}");
        }
    }
}
