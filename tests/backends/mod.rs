//! One test of each law in `laws` for each backend.

macro_rules! on_backend {
    ($backend:ident, $feature:literal, $type:ty, $also:meta, $($law:ident)*) => {
        #[cfg(feature = $feature)]
        #[allow(deprecated)]
        mod $backend {
            $(
                #[test]
                #[$also]
                fn $law() {
                    super::laws::$law::<$type>();
                }
            )*
        }
    };
}

macro_rules! on_accelerators {
    ($($law:ident)*) => {
        on_backend!(wgpu, "wgpu", burn::backend::Wgpu, cfg(all()), $($law)*);
        on_backend!(cuda, "cuda", burn::backend::Cuda,
            ignore = "needs a CUDA device; run with --include-ignored where there is one", $($law)*);
    };
}

macro_rules! on_every_backend {
    ($($law:ident)*) => {
        on_backend!(flex, "flex", burn::backend::Flex, cfg(all()), $($law)*);
        on_backend!(ndarray, "ndarray", burn::backend::NdArray, cfg(all()), $($law)*);
        on_backend!(candle, "candle", burn::backend::Candle, cfg(all()), $($law)*);
        on_accelerators!($($law)*);
    };
}
