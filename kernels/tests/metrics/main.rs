//! Prototypes, scores and the prototypical loss against their references, central differences and
//! PyTorch, on every backend.
#![recursion_limit = "256"]

mod case;
mod golden;
mod laws;
#[cfg(feature = "flex")]
mod on_flex;

macro_rules! on_backend {
    ($backend:ident, $feature:literal, $type:ty: $($law:ident)*) => {
        #[cfg(feature = $feature)]
        #[allow(deprecated)]
        mod $backend {
            type Differentiable = burn::backend::Autodiff<$type>;
            $(
                #[test]
                fn $law() {
                    super::laws::$law::<Differentiable>();
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
    values_and_gradients_equal_the_reference
    second_gradients_equal_the_reference
    other_layouts_equal_the_reference
    what_is_not_finite_spreads_as_in_the_reference
    a_single_class_has_no_loss
    no_queries_have_no_loss
    a_class_without_examples_has_no_prototype
    distances_are_those_of_the_definition
    values_and_derivatives_are_those_of_pytorch
}
