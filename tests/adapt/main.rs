//! Inner loops and their outer gradients: values of PyTorch, laws on every backend, central
//! differences.
#![recursion_limit = "256"]

#[cfg(feature = "flex")]
mod cavia;
mod curves;
mod golden;
mod laws;
mod named;
#[cfg(feature = "flex")]
mod on_flex;
#[cfg(feature = "flex")]
mod regression;
#[cfg(feature = "flex")]
mod reptile;
#[cfg(feature = "flex")]
mod twins;
mod worker_pools;

macro_rules! on_backend {
    ($backend:ident, $feature:literal, $type:ty: $($laws:tt)*) => {
        on_backend!($backend, $feature, $type, cfg(all()), $($laws)*);
    };
    ($backend:ident, $feature:literal, $type:ty, $also:meta, $($file:ident::$law:ident)*) => {
        #[cfg(feature = $feature)]
        #[allow(deprecated)]
        mod $backend {
            type Differentiable = burn::backend::Autodiff<$type>;
            $(
                #[test]
                #[$also]
                fn $law() {
                    crate::$file::$law::<Differentiable>();
                }
            )*
        }
    };
}

macro_rules! laws {
    ($($file:ident::$law:ident)*) => {
        on_backend!(flex, "flex", burn::backend::Flex: $($file::$law)*);
        on_backend!(ndarray, "ndarray", burn::backend::NdArray: $($file::$law)*);
        on_backend!(candle, "candle", burn::backend::Candle: $($file::$law)*);
        on_backend!(wgpu, "wgpu", burn::backend::Wgpu: $($file::$law)*);
        on_backend!(cuda, "cuda", burn::backend::Cuda,
            ignore = "needs a CUDA device; run with --include-ignored where there is one", $($file::$law)*);
    };
}

laws! {
    laws::gradients_are_those_of_pytorch
    laws::curvature_of_identities_is_maml
    laws::a_zero_rate_is_the_identity
    laws::tasks_side_by_side_are_tasks_one_by_one
    curves::regressions_have_the_gradients_of_pytorch
}

// On a device there is one worker.
macro_rules! host_laws {
    ($($file:ident::$law:ident)*) => {
        on_backend!(host_flex, "flex", burn::backend::Flex: $($file::$law)*);
        on_backend!(host_ndarray, "ndarray", burn::backend::NdArray: $($file::$law)*);
        on_backend!(host_candle, "candle", burn::backend::Candle: $($file::$law)*);
    };
}

host_laws! {
    worker_pools::what_worker_pools_find_is_what_one_thread_finds
    worker_pools::what_worker_pools_find_by_other_methods_is_the_same
}
