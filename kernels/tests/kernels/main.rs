//! Every operation against its reference, PyTorch and the laws it obeys, on every backend.
//!
//! One binary, so that Burn's nested autodiff is compiled once for all of them.
#![recursion_limit = "256"]

/// A test of each law for one backend. The module around it has the laws in `laws`, and `Tested<B>`
/// for what they are about: the backend itself, or the backend under autodiff.
macro_rules! on_backend {
    ($backend:ident, $feature:literal, $type:ty: $($laws:tt)*) => {
        on_backend!($backend, $feature, $type, cfg(all()), $($laws)*);
    };
    ($backend:ident, $feature:literal, $type:ty, $also:meta, $($law:ident)*) => {
        #[cfg(feature = $feature)]
        #[allow(deprecated)]
        mod $backend {
            type Tested = super::Tested<$type>;
            $(
                #[test]
                #[$also]
                fn $law() {
                    super::laws::$law::<Tested>();
                }
            )*
        }
    };
}

/// Tests for every backend, `flex::law` and so on, in groups where not every backend can be held to
/// all laws.
macro_rules! laws {
    (
        every { $($every:ident)* }
        $(on_host { $($on_host:ident)* })?
        $(but_candle { $($but_candle:ident)* })?
        $(with_f16 { $($with_f16:ident)* })?
        $(on_device { $($on_device:ident)* })?
    ) => {
        on_backend!(flex, "flex", burn::backend::Flex:
            $($every)* $($($on_host)*)? $($($but_candle)*)? $($($with_f16)*)?);
        on_backend!(ndarray, "ndarray", burn::backend::NdArray:
            $($every)* $($($on_host)*)? $($($but_candle)*)?);
        on_backend!(candle, "candle", burn::backend::Candle: $($every)* $($($on_host)*)?);
        on_backend!(wgpu, "wgpu", burn::backend::Wgpu:
            $($every)* $($($but_candle)*)? $($($with_f16)*)? $($($on_device)*)?);
        on_backend!(cuda, "cuda", burn::backend::Cuda,
            ignore = "needs a CUDA device; run with --include-ignored where there is one",
            $($every)* $($($but_candle)*)? $($($with_f16)*)? $($($on_device)*)?);
    };
}

mod augment_images;
mod axpy;
mod conv_stack;

mod empty;
mod gather_images;
mod inference;
mod inverse_power;
mod judge;
mod layers;
mod limits;
mod linear_stack;
mod metrics;
mod numbers;
#[cfg(feature = "flex")]
mod precision;
mod rank_update;
#[cfg(feature = "flex")]
mod refusal;
mod select;
mod steps;
mod task_loss;
mod weighted_sums;
