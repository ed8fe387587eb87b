//! Inner loops and their outer gradients: values of PyTorch, laws on every backend, central
//! differences.
#![recursion_limit = "256"]

mod golden;
mod laws;
mod named;
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
    gradients_are_those_of_pytorch
    curvature_of_identities_is_maml
    a_zero_rate_is_the_identity
    tasks_side_by_side_are_tasks_one_by_one
}
