//! What neurons sum up.

mod laws;
#[cfg(feature = "flex")]
mod on_flex;

/// Local rules learn below autodiff; under it the reference runs.
type Tested<B> = B;

laws! {
    every {
        sums_equal_the_reference
        what_is_not_finite_spreads_as_in_the_reference
    }
}
