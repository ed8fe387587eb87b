//! By what learning rates are divided.

mod laws;
#[cfg(feature = "flex")]
mod on_flex;

/// Local rules learn below autodiff; under it the reference runs.
type Tested<B> = B;

laws! {
    every {
        powers_equal_the_reference
        zeros_have_no_inverse
        what_is_not_finite_stays_as_in_the_reference
    }
}
