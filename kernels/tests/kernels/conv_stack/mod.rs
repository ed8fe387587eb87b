//! The stack of convolution blocks.

mod ghost;
mod gradients;
mod lanes;
mod leaves;
mod network;
#[cfg(feature = "flex")]
mod on_flex;
mod pytorch;
#[cfg(feature = "flex")]
mod refused;
mod run;
mod second;
mod values;

mod laws {
    pub use super::ghost::*;
    pub use super::gradients::*;
    pub use super::lanes::*;
    pub use super::pytorch::*;
    pub use super::second::*;
    pub use super::values::*;
}

type Tested<B> = burn::backend::Autodiff<B>;

laws! {
    every {
        values_and_gradients_are_those_of_pytorch
        the_reference_is_that_of_flex
        second_derivatives_with_pools_are_those_of_pytorch
        features_without_autodiff_are_those_with_it
        frozen_tensors_have_no_gradient_and_change_no_other
        moments_are_detached
        the_order_of_images_changes_no_other_feature
        a_stack_of_lanes_is_its_lanes
        ghost_batches_are_batches_on_their_own
        given_moments_are_those_of_all_ghost_batches
    }
    on_host {
        awkward_channel_counts_equal_the_reference
        odd_sizes_equal_the_reference
        many_images_equal_the_reference
        three_blocks_down_to_a_pixel_equal_the_reference
        one_row_and_one_column_equal_the_reference
        absent_vectors_equal_the_reference
        extreme_gains_equal_the_reference
        permuted_tensors_equal_the_reference
        expanded_tensors_equal_the_reference
        epsilon_equals_the_reference
        graphs_that_share_parameters_are_differentiated_one_by_one
        second_gradients_equal_the_reference
    }
    but_candle { second_derivatives_with_strides_are_those_of_pytorch }
    on_device {
        large_maps_equal_the_reference
        mixed_precision_rounds_as_the_reference_does
    }
}
