//! Linear layers with ReLU between them.

mod case;
mod laws;
#[cfg(feature = "flex")]
mod on_flex;

type Tested<B> = burn::backend::Autodiff<B>;

laws! {
    every {
        values_and_gradients_are_those_in_f64
        any_part_of_the_operands_can_be_differentiated
        lanes_are_what_they_are_alone
        what_is_not_finite_goes_wherever_it_does_in_the_reference
        f32_is_multiplied_in_full_by_the_reference_too
    }
    on_host {
        second_gradients_are_those_in_f64
        more_operands_than_a_node_has_parents_are_differentiated_twice
        slopes_of_a_loss_that_is_not_curved_go_back_too
        operands_may_be_tracked_at_either_level_and_count_or_not
    }
    on_device { an_accelerator_multiplies_f32_in_every_precision }
}
