//! Prototypes, scores and the prototypical loss.

mod case;
mod golden;
mod laws;
#[cfg(feature = "flex")]
mod on_flex;

type Tested<B> = burn::backend::Autodiff<B>;

laws! {
    every {
        values_and_gradients_equal_the_reference
        second_gradients_equal_the_reference
        the_loss_of_episodes_equals_the_reference
        second_gradients_of_episodes_equal_the_reference
        other_layouts_equal_the_reference
        what_is_not_finite_spreads_as_in_the_reference
        what_is_not_finite_in_a_query_stays_in_its_task
        a_single_class_has_no_loss
        no_queries_have_no_loss
        a_class_without_examples_has_no_prototype
        an_episode_with_a_class_without_examples_has_no_loss
        distances_are_those_of_the_definition
        values_and_derivatives_are_those_of_pytorch
        parts_have_the_gradients_of_slices
    }
    on_device {
        sums_over_f16_are_f32
        the_loss_of_episodes_of_f16_is_f32
        labels_of_no_class_are_seen
    }
}
