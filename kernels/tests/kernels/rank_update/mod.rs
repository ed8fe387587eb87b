//! Weights that grow by outer products.

pub mod laws;
#[cfg(feature = "flex")]
mod on_flex;

/// Local rules learn below autodiff; under it the reference runs.
type Tested<B> = B;

laws! {
    every {
        a_shared_weight_is_not_overwritten
        what_is_not_finite_spreads_as_in_the_reference
        all_and_nothing_can_be_kept
    }
    // An accelerator has no fused body: there the reference would be compared with itself.
    on_host {
        updates_equal_the_reference
    }
}
