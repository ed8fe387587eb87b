//! Layers of pretrained networks that embed.

mod depthwise;
mod laws;

/// They work below autodiff; under it the references run, and gradients of transformers where there are any.
type Tested<B> = B;

laws! {
    every {
        depthwise_maps_are_those_of_plain_operations
        depthwise_maps_of_no_image_and_no_channel_are_empty
        depthwise_shapes_that_do_not_fit_are_refused
        layers_are_those_of_plain_operations
        nothing_is_embedded_as_nothing
        shapes_that_do_not_fit_are_refused
        gradients_flow_under_autodiff
        attention_gradients_flow_under_autodiff
        gradients_are_those_of_plain_operations
        gradients_are_given_to_those_who_ask
        pointwise_gradients_flow_under_autodiff
    }
    // Candle has no gradient of convolutions of groups.
    but_candle {
        depthwise_gradients_flow_under_autodiff
        depthwise_layers_and_both_derivatives_are_those_of_plain_operations
    }
}
