//! The states that PyTorch's scaler goes through.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;
use crate::optim::Sgd;

#[derive(Deserialize)]
struct Golden {
    cases: BTreeMap<String, Case>,
}

#[derive(Deserialize)]
struct Case {
    settings: Settings,
    /// Kinds of steps, and how many of each follow each other.
    steps: Vec<(char, usize)>,
    /// Steps done, scale, growth tracker, value of the parameter.
    rows: Vec<(usize, f32, u32, f32)>,
}

#[derive(Deserialize)]
struct Settings {
    init_scale: f32,
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: u32,
}

fn golden() -> BTreeMap<String, Case> {
    let text = include_str!("../../../tests/golden/grad_scaler.json");
    serde_json::from_str::<Golden>(text).unwrap().cases
}

fn slope(step: char) -> f32 {
    match step {
        'f' => 1.0,
        'p' => f32::INFINITY,
        'm' => f32::NEG_INFINITY,
        'n' => f32::NAN,
        other => panic!("a step {other}"),
    }
}

/// Every row of a case, from the library.
fn rows(case: &Case) -> Vec<(usize, f32, u32, f32)> {
    let Settings { init_scale, growth_factor, backoff_factor, growth_interval } = case.settings;
    let config = GradScalerConfig {
        init_scale,
        growth_factor,
        backoff_factor,
        growth_interval,
        min_scale: 1e-30,
    };
    let (mut scaler, mut optimizer) = (config.init().unwrap(), Sgd::new().init());
    let mut module = single();
    let steps = case.steps.iter().flat_map(|&(step, times)| std::iter::repeat_n(step, times));
    let mut rows = Vec::new();
    for (index, step) in steps.enumerate() {
        let gradients = module.gradients(slope(step), scaler.loss_scale());
        match scaler.unscale::<B, _>(gradients, &module).unwrap() {
            Ok(gradients) => module = gradients.step(&mut optimizer, 1.0, module),
            Err(_) => assert_ne!(step, 'f'),
        }
        let GradScalerState { scale, growth_tracker, .. } = scaler.state();
        rows.push((index + 1, scale, growth_tracker, module.read()));
    }
    rows
}

#[test]
fn every_state_and_every_step_is_that_of_pytorch() {
    let cases = golden();
    assert_eq!(cases.len(), 7);
    for (name, case) in &cases {
        let actual = rows(case);
        assert!(case.rows.len() > 8, "{name}");
        for expected in &case.rows {
            assert_eq!(actual[expected.0 - 1], *expected, "{name}");
        }
    }
}

#[test]
fn the_recorded_states_reach_below_one_and_to_the_end_of_f32() {
    let scales = |name: &str| golden()[name].rows.iter().map(|row| row.1).collect::<Vec<_>>();
    assert!(scales("below_one").iter().any(|&scale| scale < 0.1));
    // Twice this is infinite: growth was tried and left out.
    let most = scales("next_to_overflow").into_iter().fold(0.0, f32::max);
    assert!((2.0 * most).is_infinite());
}
