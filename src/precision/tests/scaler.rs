//! Scales, settings and errors.

use super::*;

fn scaler(config: GradScalerConfig) -> GradScaler {
    config.init().unwrap()
}

fn step(scaler: &mut GradScaler, slope: f32) -> Result<bool, ScaleError> {
    let module = single();
    let gradients = module.gradients(slope, scaler.loss_scale());
    scaler.unscale::<B, _>(gradients, &module).map(|unscaled| unscaled.is_ok())
}

#[test]
fn skipped_steps_are_counted_and_say_their_scale() {
    let mut scaler = scaler(GradScalerConfig::new());
    for slope in [1.0, f32::NAN, 1.0, f32::INFINITY, f32::NEG_INFINITY, 1.0] {
        assert_eq!(step(&mut scaler, slope), Ok(slope.is_finite()));
    }
    let expected = GradScalerState { scale: 8192.0, growth_tracker: 1, skipped: 3 };
    assert_eq!((scaler.state(), scaler.skipped()), (expected, 3));
    let module = single();
    let gradients = module.gradients(f32::NAN, scaler.loss_scale());
    let skipped = scaler.unscale::<B, _>(gradients, &module).unwrap().unwrap_err();
    assert_eq!(
        skipped.to_string(),
        "a gradient is not finite at a loss scale of 8192; the step is skipped"
    );
}

#[test]
fn the_scale_stops_at_its_floor_and_there_a_step_that_is_not_finite_is_an_error() {
    let config = GradScalerConfig::new().with_init_scale(5.0).with_min_scale(2.0);
    let mut scaler = scaler(config);
    let mut scales = Vec::new();
    for _ in 0..2 {
        assert_eq!(step(&mut scaler, f32::INFINITY), Ok(false));
        scales.push(scaler.loss_scale().value());
    }
    assert_eq!(scales, [2.5, 2.0]);
    let before = scaler.state();
    let error = step(&mut scaler, f32::INFINITY).unwrap_err();
    assert_eq!(error, ScaleError::Underflow { scale: 2.0, min: 2.0 });
    assert_eq!(
        error.to_string(),
        "a gradient is not finite at a loss scale of 2, and the scale may not fall below 2"
    );
    assert_eq!(scaler.state(), before);
    assert_eq!(step(&mut scaler, 1.0), Ok(true));
}

#[test]
fn gradients_of_another_scale_are_refused_and_change_nothing() {
    let mut scaler = scaler(GradScalerConfig::new());
    let module = single();
    let old = module.gradients(1.0, scaler.loss_scale());
    assert_eq!(step(&mut scaler, f32::NAN), Ok(false));
    let before = scaler.state();
    let error = scaler.unscale::<B, _>(old, &module).unwrap_err();
    assert_eq!(error, ScaleError::OtherScale { scale: 65536.0, present: 32768.0 });
    assert_eq!(scaler.state(), before);
}

#[test]
fn a_scaler_goes_on_from_its_state_through_json() {
    let config = GradScalerConfig::new().with_growth_interval(3).with_backoff_factor(0.3);
    let mut whole = scaler(config.clone());
    let slopes = [1.0, f32::NAN, 1.0, 1.0, 1.0, f32::NAN, 1.0, 1.0];
    let mut halves = scaler(config.clone());
    for slope in slopes {
        step(&mut whole, slope).unwrap();
        let json = serde_json::to_string(&halves.state()).unwrap();
        halves = scaler(config.clone()).with_state(serde_json::from_str(&json).unwrap()).unwrap();
        step(&mut halves, slope).unwrap();
    }
    assert_eq!(halves.state(), whole.state());
    assert_eq!(whole.skipped(), 2);
}

#[test]
fn a_state_that_no_step_leads_to_is_refused() {
    let scaler = scaler(GradScalerConfig::new().with_growth_interval(4).with_min_scale(2.0));
    let state = scaler.state();
    let error = |state| scaler.clone().with_state(state).unwrap_err().to_string();
    assert_eq!(
        error(GradScalerState { scale: 1.5, ..state }),
        "the loss scale must be at least 2, found 1.5"
    );
    assert_eq!(
        error(GradScalerState { scale: f32::INFINITY, ..state }),
        "the loss scale must be finite, found inf"
    );
    assert_eq!(
        error(GradScalerState { growth_tracker: 4, ..state }),
        "the count of finite steps must be below the growth interval of 4, found 4"
    );
    let nan = GradScalerState { scale: f32::NAN, ..state };
    assert!(scaler.clone().with_state(nan).is_err());
    let most = GradScalerState { scale: f32::MAX, growth_tracker: 3, skipped: 9 };
    assert_eq!(scaler.clone().with_state(most).unwrap().state(), most);
}

#[test]
fn settings_without_meaning_are_refused_with_their_numbers() {
    let new = GradScalerConfig::new;
    let cases = [
        (new().with_growth_factor(1.0), "growth factor must be finite and above 1, found 1"),
        (new().with_growth_factor(f64::NAN), "growth factor must be finite and above 1, found NaN"),
        (
            new().with_growth_factor(f64::INFINITY),
            "growth factor must be finite and above 1, found inf",
        ),
        (new().with_backoff_factor(1.0), "backoff factor must be between 0 and 1, found 1"),
        (new().with_backoff_factor(0.0), "backoff factor must be between 0 and 1, found 0"),
        (new().with_backoff_factor(f64::NAN), "backoff factor must be between 0 and 1, found NaN"),
        (new().with_growth_interval(0), "growth interval must be at least 1 step, found 0"),
        (
            new().with_min_scale(0.0),
            "smallest loss scale must be finite and at least 1.2e-38, found 0",
        ),
        (
            new().with_min_scale(-1.0),
            "smallest loss scale must be finite and at least 1.2e-38, found -1",
        ),
        (new().with_init_scale(0.5), "initial loss scale must be at least 1, found 0.5"),
        (new().with_init_scale(f32::INFINITY), "initial loss scale must be finite, found inf"),
        (new().with_init_scale(f32::NAN), "initial loss scale must be finite, found NaN"),
    ];
    for (config, expected) in cases {
        let actual = config.init().unwrap_err().to_string();
        assert_eq!(actual, format!("the {expected}"));
    }
}

#[test]
fn defaults_are_those_of_pytorch_with_a_floor_of_one() {
    let actual = GradScalerConfig::new();
    let expected = (65536.0, 2.0, 0.5, 2000, 1.0);
    let (init, growth) = (actual.init_scale, actual.growth_factor);
    let (backoff, interval) = (actual.backoff_factor, actual.growth_interval);
    assert_eq!((init, growth, backoff, interval, actual.min_scale), expected);
}
