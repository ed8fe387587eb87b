//! Convolution by a window of one pixel.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};

use super::{reference, rows_of_a_task};
use crate::cpu::buffers::in_parts;
use crate::cpu::epilogue::Epilogue;
use crate::cpu::gemm::{Gemm, Packed};
use crate::cpu::instruction_set::chosen;
use crate::host::{HostBackend, HostTable, elements, unwrap, wrap, write_like};
use crate::registry;

/// A convolution by a window of one pixel, times `scale` plus `shift` by channel, within bounds, plus a map: the
/// expansion and the projection of mobile networks, with batch-norm by running averages, ReLU6 and residual.
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

/// See [`HostTable`](crate::host::HostTable).
pub(crate) fn on_host<B: HostBackend>(
    tensors: [FloatTensor<B>; 4],
    bounds: [f32; 2],
    add: Option<FloatTensor<B>>,
) -> FloatTensor<B> {
    let [n, channels, h, w]: [usize; 4] = tensors[0].shape().dims();
    let (outputs, pixels, body) = (tensors[1].shape()[0], h * w, chosen());
    let values = tensors.each_ref().map(elements::<B>);
    let [x, weight, scale, shift] = values.each_ref().map(|of| &**of);
    let add = add.as_ref().map(elements::<B>);
    let rows = rows_of_a_task(outputs, channels * pixels);
    let pack = |image: usize| {
        let x = &x[image * channels * pixels..];
        Packed::new(body.tile() / 2, (x, pixels), [channels, pixels])
    };
    let y = in_parts(n, [outputs * pixels, rows * pixels], pack, |packed, [image, task], y| {
        let (first, count) = (task * rows, y.len() / pixels);
        let place = (image * outputs + first) * pixels;
        let job = Gemm {
            a: (&weight[first * channels..], channels),
            b: packed,
            rows: count,
            epilogue: Epilogue::Rows {
                scale: &scale[first..][..count],
                shift: &shift[first..][..count],
                bounds,
                add: add.as_deref().map(|add| &add[place..][..y.len()]),
            },
        };
        body.gemm(&job, (y, pixels));
    });
    drop(values);
    write_like::<B, 4>(&tensors[0], y, [n, outputs, h, w])
}
