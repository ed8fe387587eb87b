use burn::tensor::backend::Backend;

use super::{assert_close, on_accelerators, on_backend, on_every_backend, random, read, tensor};
use crate::plasticity::Reactive;

on_every_backend! {
    a_reactive_layer_gets_used_to_a_constant
    a_reactive_layer_of_one_tick_gives_differences
    changes_surprise_more_than_what_is_usual
    the_first_ticks_surprise_as_much_as_later_ones
    a_jump_after_a_silence_surprises_by_the_length_of_the_silence
}

fn a_reactive_layer_gets_used_to_a_constant<B: Backend>() {
    let layer = Reactive::new(4.0).unwrap();
    let quiet = tensor::<B, 2>(&[1.0, -2.0], [1, 2]);
    let loud = quiet.clone() + 3.0;
    let mut reaction = layer.forward(quiet, None);
    assert_eq!(read(reaction.deviation.clone()), [0.0, 0.0]);
    assert_eq!(read(reaction.surprise.clone()), [0.0]);
    for tick in 0..20 {
        reaction = layer.forward(loud.clone(), Some(reaction.expectation));
        let expected = 3.0 * 0.75f32.powi(tick);
        assert_close("deviation", &read(reaction.deviation.clone()), &[expected; 2], 1e-4);
    }
}

fn a_reactive_layer_of_one_tick_gives_differences<B: Backend>() {
    let layer = Reactive::new(1.0).unwrap();
    let expectation = layer.forward(tensor::<B, 2>(&[1.0, 5.0], [2, 1]), None).expectation;
    let reaction = layer.forward(tensor(&[4.0, 3.0], [2, 1]), Some(expectation));
    assert_close("deviation", &read(reaction.deviation), &[3.0, -2.0], 1e-6);
}

fn changes_surprise_more_than_what_is_usual<B: Backend>() {
    let layer = Reactive::new(50.0).unwrap();
    let xs = random::<B, 2>(3, [400, 8]);
    let mut expectation = None;
    let mut usual = 0.0;
    for tick in 0..400 {
        let reaction = layer.forward(xs.clone().narrow(0, tick, 1), expectation);
        usual += if tick >= 200 { read(reaction.surprise)[0] / 200.0 } else { 0.0 };
        expectation = Some(reaction.expectation);
    }
    assert!((0.7..1.4).contains(&usual), "{usual}");
    let jump = layer.forward(xs.narrow(0, 0, 1) + 5.0, expectation);
    assert!(read(jump.surprise)[0] > 10.0 * usual);
}

fn the_first_ticks_surprise_as_much_as_later_ones<B: Backend>() {
    for tau in [3.0, 50.0] {
        let layer = Reactive::new(tau).unwrap();
        let xs = random::<B, 2>(5, [10, 2000]);
        let mut expectation = None;
        for tick in 1..=10 {
            let reaction = layer.forward(xs.clone().narrow(0, tick - 1, 1), expectation);
            let surprise = read(reaction.surprise)[0];
            match tick {
                1 => assert_eq!(surprise, 0.0),
                tick => assert!((0.5..1.5).contains(&surprise), "{surprise} at tick {tick}"),
            }
            expectation = Some(reaction.expectation);
        }
    }
}

fn a_jump_after_a_silence_surprises_by_the_length_of_the_silence<B: Backend>() {
    let layer = Reactive::new(50.0).unwrap();
    let quiet = tensor::<B, 2>(&[1.0, -2.0], [1, 2]);
    let silent = (0..9)
        .fold(None, |expectation, _| Some(layer.forward(quiet.clone(), expectation).expectation));
    let reaction = layer.forward(quiet + 3.0, silent);
    assert_close("surprise", &read(reaction.surprise), &[9.0], 1e-3);
}
