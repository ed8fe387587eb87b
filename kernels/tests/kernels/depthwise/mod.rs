//! Convolution of each channel by itself.

mod laws;

/// It works below autodiff; under it the reference runs.
type Tested<B> = B;

laws! {
    every {
        maps_are_those_of_plain_operations
        no_image_and_no_channel_have_maps_too
        what_does_not_fit_is_refused
    }
    // Candle has no gradient of convolutions of groups.
    but_candle {
        gradients_flow_under_autodiff
    }
}
