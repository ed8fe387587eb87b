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

/// Checks that embeddings of `found` features are maps of this shape.
pub(super) fn fits_map(found: usize, map: [usize; 3]) {
    let wanted: usize = map.iter().product();
    assert_eq!(found, wanted, "maps {map:?} have {wanted} features, found {found}");
}
