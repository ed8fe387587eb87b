//! Settings of heads, or a panic.

pub(in crate::learners) fn positive(name: &str, value: f64) {
    assert!(value > 0.0 && value.is_finite(), "{name} must be positive, found {value}");
}

pub(in crate::learners) fn not_negative<const N: usize>(name: &str, values: [f64; N]) {
    let sound = values.iter().all(|&value| value >= 0.0 && value.is_finite());
    assert!(sound, "{name} must not be negative, found {values:?}");
}

pub(super) fn not_zero(name: &str, value: f64) {
    assert!(value != 0.0 && value.is_finite(), "{name} must not be zero, found {value}");
}

pub(super) fn some_steps(steps: usize) {
    assert!(steps > 0, "a head is fitted in one step or more, found 0");
}

/// Checks that embeddings of so many `features` are maps of this shape.
pub(super) fn fits_map(features: usize, map: [usize; 3]) {
    let expected: usize = map.iter().product();
    assert_eq!(features, expected, "maps {map:?} have {expected} features, found {features}");
}
