//! A context that is there and modulates nothing.

use super::*;

#[test]
fn a_conv4_with_scales_of_one_and_no_shifts_is_the_one_without() {
    for blocks in [1, 2, 4] {
        let config = Conv4Config::new([2, 16, 17]).with_channels(3).with_blocks(blocks);
        let plain: Conv4<Flex> = conv4(&config);
        let contextual: Conv4<Flex> = conv4(&config.with_context(4));
        let mut values = state(&contextual);
        values.insert("film.map.bias".to_owned(), vec![1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
        let contextual = with_state(contextual, &values);
        let mut rest = state(&contextual);
        rest.retain(|name, _| !name.starts_with("film."));
        assert_eq!(rest, state(&plain));
        let images = || uniform(1, [3, 2, 16, 17]);
        for statistics in [BnStatistics::Batch, BnStatistics::Running, BnStatistics::Track] {
            let expected = plain.encode(images(), statistics).into_data();
            contextual.encode(images(), statistics).into_data().assert_eq(&expected, true);
        }
    }
}

#[test]
fn a_film_is_drawn_within_its_bounds() {
    let film = FilmConfig::new(12, 100).init::<Flex>(&Default::default());
    assert_eq!(read(film.context.val()), [0.0; 12]);
    let largest = |values: Vec<f32>| values.into_iter().map(f32::abs).fold(0.0, f32::max);
    let weight = largest(read(film.map.weight.val()));
    assert!((0.49..=0.5).contains(&weight), "the weight is within sqrt(3 / 12): {weight}");
    let bias = largest(read(film.map.bias.as_ref().unwrap().val()));
    assert!((0.27..=0.2887).contains(&bias), "the bias is within 1 / sqrt(12): {bias}");
}

#[test]
fn an_mlp_is_the_one_without() {
    let contextual: Mlp<Flex> = mlp(2);
    let mut values = state(&contextual);
    assert_eq!(values.remove("context"), Some(vec![0.0; 2]));
    values.get_mut("layers.0.weight").unwrap().truncate(4 * 5);
    let plain = with_state(mlp::<Flex>(0), &values);
    let x = uniform(2, [6, 4]);
    assert_close("y", &read(contextual.forward(x.clone())), &read(plain.forward(x)), 1e-6);
}

#[test]
fn the_context_has_a_gradient() {
    let module: Conv4<Once> = conv4(&conv4_config().with_context(4));
    let features = module.encode(uniform(3, [4, 2, 8, 9]), BnStatistics::Batch);
    let found = gradients(&module, &loss(features).backward());
    assert!(read(found["film.context"].clone()).iter().all(|value| value.abs() > 1e-4));
}
