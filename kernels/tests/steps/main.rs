//! Optimizer steps and statistics of gradients against their references and PyTorch, on every
//! backend.
#![recursion_limit = "256"]

mod golden;
mod laws;
#[cfg(feature = "flex")]
mod on_flex;
mod set;

macro_rules! on_backend {
    ($backend:ident, $feature:literal, $type:ty: $($law:ident)*) => {
        #[cfg(feature = $feature)]
        #[allow(deprecated)]
        mod $backend {
            $(
                #[test]
                fn $law() {
                    super::laws::$law::<$type>();
                }
            )*
        }
    };
}

macro_rules! laws {
    ($($law:ident)*) => {
        on_backend!(flex, "flex", burn::backend::Flex: $($law)*);
        on_backend!(ndarray, "ndarray", burn::backend::NdArray: $($law)*);
        on_backend!(candle, "candle", burn::backend::Candle: $($law)*);
        on_backend!(wgpu, "wgpu", burn::backend::Wgpu: $($law)*);
    };
}

laws! {
    steps_are_those_of_pytorch
    steps_equal_the_reference
    shared_tensors_are_not_overwritten
    gradients_are_scaled_and_measured
    what_is_not_finite_spreads_as_in_the_reference
    gradients_that_are_not_finite_are_found
    squares_do_not_overflow
    nothing_is_a_set_of_norm_zero
}
