//! Convolution by a window of one pixel.

pub(crate) mod host;
mod reference;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::host::{HostTable, unwrap, wrap};
use crate::registry;

/// A convolution by a window of one pixel, times `scale` plus `shift` by channel, within bounds, plus a map: the
/// expansion and the projection of mobile networks, with batch-norm by running averages, ReLU6 and residual.
///
/// A host takes it in one pass, below autodiff: on a backend that differentiates, plain operations run, and
/// gradients flow.
///
/// # Shapes
/// - `x`: `[n, c, h, w]`
/// - `weight`: `[o, c, 1, 1]`
/// - `scale`, `shift`: `[o]`
/// - `bounds`: least and largest value before something is added; infinite for none
/// - `add`: `[n, o, h, w]`
/// - returns `[n, o, h, w]`
///
/// # Conventions
/// The PyTorch equivalent is `(F.conv2d(x, weight) * scale + shift).clamp(*bounds) + add`.
///
/// # Panics
/// When the shapes do not fit, or the bounds are none.
pub fn pointwise_conv2d<B: Backend>(
    x: Tensor<B, 4>,
    weight: Tensor<B, 4>,
    [scale, shift]: [Tensor<B, 1>; 2],
    bounds: [f32; 2],
    add: Option<Tensor<B, 4>>,
) -> Tensor<B, 4> {
    let ([n, channels, h, w], [outputs, ..]) = (x.dims(), weight.dims());
    let wanted = [outputs, channels, 1, 1];
    assert_eq!(weight.dims(), wanted, "a weight for each output and channel");
    assert_eq!([&scale, &shift].map(|of| of.dims()), [[outputs]; 2], "a value for each output");
    assert!(bounds[0] <= bounds[1], "bounds from the least to the largest, found {bounds:?}");
    let shape = [n, outputs, h, w];
    if let Some(add) = &add {
        assert_eq!(add.dims(), shape, "what is added has the shape of the result");
    }
    if shape.contains(&0) {
        return Tensor::zeros(shape, (&x.device(), x.dtype()));
    }
    let types = [x.dtype(), weight.dtype(), scale.dtype(), shift.dtype()];
    let types = types.into_iter().chain(add.as_ref().map(|add| add.dtype()));
    match registry::f32_table::<HostTable<B>>("pointwise_conv2d", types) {
        Some(table) if channels > 0 => {
            let of = [unwrap(x), unwrap(weight), unwrap(scale), unwrap(shift)];
            wrap((table.pointwise)(of, bounds, add.map(unwrap)))
        }
        _ => reference::pointwise_conv2d(x, weight, [scale, shift], bounds, add),
    }
}
