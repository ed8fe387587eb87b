//! Numbers that make no sense.

use burn::backend::Flex;

use super::tensor;
use crate::plasticity::{
    Bcm, Coefficients, Covariance, Hebb, LearnedRate, PlasticityError, Rate, largest_rate,
};

#[test]
fn settings_that_make_no_sense_are_errors_with_numbers() {
    let error = Hebb::new().with_decay(-0.5).unwrap_err();
    assert_eq!(error.to_string(), "the decay must be a number from 0 on, found -0.5");
    for tau in [0.5, f64::NAN, f64::INFINITY] {
        assert!(matches!(Bcm::new(tau), Err(PlasticityError::Setting { name: "tau", .. })));
        assert!(Covariance::new(tau).is_err());
    }
    // 1e-300 is zero in 32 bits.
    for threshold in [0.0, 1e-300, -1.0, f64::NAN] {
        assert!(Bcm::new(1.0).unwrap().with_threshold(threshold).is_err());
    }
}

#[test]
fn rates_and_coefficients_are_numbers() {
    for rate in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(Rate::<Flex>::fixed(rate).is_err());
        assert!(LearnedRate::<Flex>::new(rate, &Default::default()).is_err());
    }
    for broken in [f64::NAN, f64::NEG_INFINITY, 1e300] {
        let actual = Coefficients::<Flex>::new([1.0, broken, 0.0, 0.0], &Default::default());
        let error = actual.unwrap_err();
        assert!(matches!(error, PlasticityError::Setting { name: "coefficient", .. }), "{error}");
    }
}

#[test]
fn the_largest_rate_is_one_over_the_mean_squared_length() {
    let x = tensor::<Flex, 2>(&[1.0, 2.0, 3.0, 0.0], [2, 2]);
    assert!((largest_rate(x) - 1.0 / 7.0).abs() < 1e-7);
}
