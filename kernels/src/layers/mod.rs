//! Dispatch of single layers: the trait a backend implements to fuse them, and the table of its functions.
//!
//! Every primitive's derivatives are primitives of the level of autodiff below, so gradients stay
//! fused under every level that is registered.

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "fusion")]
mod fusion;
mod host;
pub(crate) mod node;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, FloatDType, Tensor};

use crate::batch_norm::fused::normalised;
use crate::conv2d::shape::{ConvShape, Role};
use crate::fallback::{all_taken, goes_into_f32};
use crate::global_avg_pool::reference as average;
use crate::host::{unwrap, wrap};
use crate::leaky_relu::rectifier::Rectifier;
use crate::leaky_relu::reference as relu;
use crate::max_pool::Windows;
use crate::norm_relu::composed;
use crate::norm_relu::rectified::Rectified;
use crate::registry::{self, function_table};

/// A backend with fused bodies for single layers; maps are of one type, vectors by channel and sums
/// over channels f32, and shapes have been checked.
pub trait FusedLayers: Backend {
    /// The map as its bodies read it fastest, for several of them: an accelerator's convolution leaves
    /// channels last.
    fn laid_out(x: FloatTensor<Self>) -> FloatTensor<Self> {
        x
    }

    /// The largest value of every window of `x` `[n, c, h, w]`.
    fn pool(windows: Windows, x: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::pool_gather(windows, x.clone(), x)
    }

    /// The sum of `dy` of the windows of `x` whose first largest pixel a pixel is; linear in `dy`.
    fn pool_scatter(
        windows: Windows,
        x: FloatTensor<Self>,
        dy: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// `u` at the first largest pixel of every window of `x`; linear in `u`.
    fn pool_gather(
        windows: Windows,
        x: FloatTensor<Self>,
        u: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// The values of a rectifier. This and [`leaky_gate`](Self::leaky_gate) are Burn's own operations unless a backend
    /// has better.
    fn leaky(x: FloatTensor<Self>, by: Rectifier) -> FloatTensor<Self> {
        unwrap(relu::rectified(wrap::<Self, 4>(x), by))
    }

    /// `values` times the slope of the rectifier where its output is `at`; linear in the values.
    fn leaky_gate(
        at: FloatTensor<Self>,
        values: FloatTensor<Self>,
        by: Rectifier,
    ) -> FloatTensor<Self> {
        let [at, values] = [at, values].map(wrap::<Self, 4>);
        unwrap(relu::gated(at, values, by))
    }

    /// Mean of every plane, lane after lane: `[n, lanes * c, h, w]` to `[lanes, n, c]`.
    fn plane_mean(x: FloatTensor<Self>, lanes: usize) -> FloatTensor<Self> {
        unwrap(average::global_avg_pool_lanes(wrap::<Self, 4>(x), lanes))
    }

    /// The transpose of [`plane_mean`](Self::plane_mean): `[lanes, n, c]` over planes of the given size,
    /// divided by their pixels. Both are Burn's own unless a backend has better.
    fn plane_spread(u: FloatTensor<Self>, size: [usize; 2]) -> FloatTensor<Self> {
        unwrap(average::spread(wrap::<Self, 3>(u), size))
    }

    /// See [`channels`](crate::channels).
    fn channel_moments(x: FloatTensor<Self>) -> FloatTensor<Self>;

    /// See [`channels`](crate::channels); `of` is `g`, `x` and the centre.
    fn channel_correlate(of: [FloatTensor<Self>; 3]) -> FloatTensor<Self>;

    /// See [`channels`](crate::channels); `map` is the centre, the scale and the shift.
    fn channel_affine(x: FloatTensor<Self>, map: [FloatTensor<Self>; 3]) -> FloatTensor<Self>;

    /// See [`channels`](crate::channels); each operand is a map with its centre and its scale.
    fn channel_combine(of: [[FloatTensor<Self>; 3]; 2]) -> FloatTensor<Self>;

    /// `x` normalised by its own moments, with what comes `after` that, and the moments, untracked:
    /// `[2, c]`. `affine` is gamma and beta.
    fn batch_norm(
        x: FloatTensor<Self>,
        affine: [FloatTensor<Self>; 2],
        epsilon: f64,
        after: Option<Rectified>,
    ) -> [FloatTensor<Self>; 2] {
        let normalised_map = normalised::<Self>(Self::laid_out(x), affine, epsilon, after);
        [normalised_map.y, normalised_map.moments]
    }

    /// See [`norm_relu`](mod@crate::norm_relu); `map` is the centre, the scale and the shift.
    fn activate(
        x: FloatTensor<Self>,
        map: [FloatTensor<Self>; 3],
        after: Rectified,
    ) -> FloatTensor<Self> {
        composed::activate::<Self>(x, map, after)
    }

    /// The sums by channel of `dv` and of `dv * (x - centre)`, `[2, c]`, and the gradient of `x`, each
    /// where it is `wanted`; `dv` is the gradient `dz` taken back through what came `after` the `map`.
    /// With `inverse`, the inverse deviation, centre and scale are of the moments of `x` itself.
    fn norm_backward(
        dz: FloatTensor<Self>,
        x: FloatTensor<Self>,
        map: [FloatTensor<Self>; 3],
        inverse: Option<FloatTensor<Self>>,
        after: Option<Rectified>,
        requires_grad: [bool; 2],
    ) -> [Option<FloatTensor<Self>>; 2] {
        composed::backward::<Self>(dz, x, map, inverse, after, requires_grad)
    }

    /// True if the device has tensor cores that multiply in TF32.
    fn has_tf32(_: &Self::Device) -> bool {
        false
    }

    /// The derivative of `<dy, conv(x, w)>` by the operand `wanted`, given the two whose roles follow, of
    /// one type.
    fn convolution(
        role: Role,
        operands: [FloatTensor<Self>; 2],
        shape: &ConvShape,
    ) -> FloatTensor<Self>;
}

function_table! {
    /// The primitives that the public functions call.
    LayerTable of FusedLayers {
        pub has_tf32: fn(&B::Device) -> bool,
        pub convolution: fn(Role, [FloatTensor<B>; 2], &ConvShape) -> FloatTensor<B>,
        pub pool: fn(Windows, FloatTensor<B>) -> FloatTensor<B>,
        pub leaky: fn(FloatTensor<B>, Rectifier) -> FloatTensor<B>,
        pub plane_mean: fn(FloatTensor<B>, usize) -> FloatTensor<B>,
        pub channel_affine: fn(FloatTensor<B>, [FloatTensor<B>; 3]) -> FloatTensor<B>,
        pub batch_norm: fn(FloatTensor<B>, [FloatTensor<B>; 2], f64, Option<Rectified>)
            -> [FloatTensor<B>; 2],
        pub activate: fn(FloatTensor<B>, [FloatTensor<B>; 3], Rectified) -> FloatTensor<B>,
    }
}

/// The table of `B` for maps of the type `of` with vectors of these types, which the bodies get as
/// f32, and the type that they get the map in: its own, or f32 if it goes into that. `operation` is
/// the name of what asks.
pub(crate) fn table<B: Backend>(
    operation: &'static str,
    of: DType,
    vectors: impl IntoIterator<Item = DType>,
) -> Option<(&'static LayerTable<B>, FloatDType)> {
    let table = registry::table::<LayerTable<B>>()?;
    let taken = if registry::taken::<B>()(of) { of.into() } else { FloatDType::F32 };
    let fits = all_taken(operation, vectors.into_iter().chain([of]), goes_into_f32);
    fits.then_some((table, taken))
}

/// The type of a layer's result, the one `of` its map, where its operands go through f32: on a host,
/// if some are of f16 or bf16, and the others f32.
pub(crate) fn through_f32<B: Backend>(
    of: DType,
    types: impl IntoIterator<Item = DType>,
) -> Option<FloatDType> {
    let mut low = of != DType::F32;
    for dtype in types.into_iter().chain([of]) {
        low |= dtype != DType::F32;
        if !goes_into_f32(dtype) {
            return None;
        }
    }
    (low && registry::on_host::<B>()).then(|| of.into())
}

/// The vectors that are there as f32.
pub(crate) fn wide<B: Backend, const N: usize>(
    vectors: [Option<Tensor<B, 1>>; N],
) -> [Option<Tensor<B, 1>>; N] {
    vectors.map(|vector| vector.map(|vector| vector.cast(FloatDType::F32)))
}

/// The types of the vectors that are there.
pub(crate) fn types<'a, B: Backend>(
    vectors: impl IntoIterator<Item = &'a Option<Tensor<B, 1>>>,
) -> impl Iterator<Item = DType> {
    vectors.into_iter().flatten().map(Tensor::dtype)
}
