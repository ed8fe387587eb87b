//! Optimizer steps and statistics of gradients.

mod golden;
mod laws;
mod lists;
#[cfg(feature = "flex")]
mod on_flex;
pub mod set;

/// Steps are taken below autodiff.
type Tested<B> = B;

laws! {
    every {
        steps_are_those_of_pytorch
        steps_equal_the_reference
        shared_tensors_are_not_overwritten
        gradients_are_scaled_and_measured
        what_is_not_finite_spreads_as_in_the_reference
        gradients_that_are_not_finite_are_found
        statistics_that_are_read_later_are_the_same
        squares_do_not_overflow
        nothing_is_a_set_of_norm_zero
        many_tensors_step_as_each_alone
        lists_that_share_memory_keep_what_others_hold
        many_gradients_are_scaled_and_measured
    }
    with_f16 { f16_moves_in_single_precision }
}
