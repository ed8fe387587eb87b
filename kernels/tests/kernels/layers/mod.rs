//! Single layers.

mod case;
mod differences;
mod golden;
mod laws;
mod low;
#[cfg(feature = "flex")]
mod on_flex;
#[cfg(feature = "flex")]
mod refused;
mod run;

type Tested<B> = burn::backend::Autodiff<B>;

laws! {
    every {
        values_and_gradients_are_those_of_pytorch
        second_gradients_are_those_of_pytorch
        a_nan_reaches_every_pool_that_holds_it
        a_nan_goes_through_the_relu_after_a_normalisation
        layers_are_fused_under_up_to_two_levels_of_autodiff
        normalisations_equal_the_reference
        rectified_normalisations_equal_the_reference
        extreme_gains_equal_the_reference
        constant_channels_equal_the_reference
        pools_and_averages_equal_the_reference
        leaky_relus_equal_the_reference
        permuted_and_expanded_operands_equal_the_reference
        frozen_operands_have_no_gradient_and_change_no_other
        moments_are_those_of_the_batch_and_detached
    }
    on_host {
        convolutions_equal_the_reference
        other_windows_take_the_reference
        linear_layers_equal_the_reference
        gradients_are_central_differences
    }
    with_f16 {
        layers_of_f16_are_those_of_their_elements
        moments_of_f16_are_f32
        parameters_may_be_of_another_type_than_the_map
    }
}
