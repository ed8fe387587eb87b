//! Tasks that share an encoder: each is embedded as if it were alone.

use super::*;

const TASKS: usize = 3;

fn assert_is_the_loop<E: Encoder<Once> + AutodiffModule<Once>>(
    make: impl Fn() -> E,
    images: Tensor<Once, 5>,
) {
    for statistics in [BnStatistics::Batch, BnStatistics::Running, BnStatistics::Track] {
        let (encoder, alone) = (make(), make());
        let features = encoder.encode_tasks(images.clone(), statistics);
        let each = (0..TASKS).map(|task| {
            let images = images.clone().slice(task..task + 1).flatten(0, 1);
            alone.encode(images, statistics).unsqueeze()
        });
        let expected = Tensor::<Once, 3>::cat(each.collect(), 0);
        assert_eq!(features.dims(), expected.dims());
        let gradient = |encoder: &E, features: Tensor<Once, 3>| {
            let found = context::gradients(encoder, &features.powi_scalar(3).sum().backward());
            found.into_values().flat_map(read).collect::<Vec<_>>()
        };
        let found = gradient(&encoder, features.clone());
        let wanted = gradient(&alone, expected.clone());
        let what = format!("{statistics:?}");
        assert_close(&what, &read(features), &read(expected), 2e-5);
        assert_close(&format!("gradients, {what}"), &found, &wanted, 2e-4);
        assert_eq!(state(&encoder), state(&alone), "{what}");
    }
}

#[test]
fn of_a_conv4() {
    let pooled = Conv4Config::new([2, 8, 9]).with_channels(3).with_blocks(2);
    let strided = pooled.clone().with_downsampling(Downsampling::Stride).with_context(4);
    for config in [pooled, strided] {
        let make = || {
            Once::seed(&Default::default(), 5);
            config.init::<Once>(&Default::default())
        };
        assert_is_the_loop(make, uniform(31, [TASKS, 5, 2, 8, 9]));
    }
}

#[test]
fn of_an_mlp() {
    let make = || {
        Once::seed(&Default::default(), 5);
        MlpConfig::new(4).with_layers(vec![6, 3]).with_context(2).init::<Once>(&Default::default())
    };
    assert_is_the_loop(make, uniform(32, [TASKS, 6, 4, 1, 1]));
}
