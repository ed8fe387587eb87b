//! Convolution of all channels, with what follows.

use std::mem::MaybeUninit;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};
use fewshot_simd::buffers::in_parts;
use fewshot_simd::epilogue::Epilogue;
use fewshot_simd::gemm::{Gemm, RightMatrix};
use fewshot_simd::im2col::Windows;

use super::{FusedConvOptions, reference, rows_of_a_task};
use crate::environment::chosen;
use crate::host::{HostBackend, elements, unwrap, wrap, write_like};
use crate::registry::{self, Operation, Runs};

/// A convolution, times `scale` plus `shift` by channel, plus `add`, within bounds: a layer of networks with batch-norm by
/// running averages, with its residual and ReLU.
///
/// # Shapes
/// - `x`: `[n, c, h, w]`
/// - `weight`: `[o, c, k, k]`
/// - `scale`, `shift`: `[o]`
/// - `add`: of the shape of the result
/// - returns `[n, o, (h + top + bottom - k) / stride + 1, (w + left + right - k) / stride + 1]`
///
/// # Conventions
/// The PyTorch equivalent is `(F.conv2d(F.pad(x, ...), weight, stride=stride) * scale + shift + add).clamp(*bounds)`.
///
/// # Panics
/// When the shapes do not fit, or the options are none.
pub fn fused_conv2d<B: Backend>(
    x: Tensor<B, 4>,
    weight: Tensor<B, 4>,
    [scale, shift]: [Tensor<B, 1>; 2],
    options: FusedConvOptions,
    add: Option<Tensor<B, 4>>,
) -> Tensor<B, 4> {
    let ([n, channels, ..], [outputs, _, _, window]) = (x.dims(), weight.dims());
    let weight_shape = [outputs, channels, window, window];
    assert_eq!(
        weight.dims(),
        weight_shape,
        "a weight for each output, channel and pixel of a window"
    );
    assert_eq!([&scale, &shift].map(|of| of.dims()), [[outputs]; 2], "a value for each output");
    let [rows, columns] = options.checked(x.dims(), window);
    let shape = [n, outputs, rows, columns];
    if let Some(add) = &add {
        assert_eq!(add.dims(), shape, "what is added has the shape of the result");
    }
    if shape.contains(&0) {
        return Tensor::empty(shape, (&x.device(), x.dtype()));
    }
    let types = [x.dtype(), weight.dtype(), scale.dtype(), shift.dtype()];
    let types = types.into_iter().chain(add.as_ref().map(|add| add.dtype()));
    match registry::f32_body::<B, FusedConv>("fused_conv2d", types) {
        Some(body) if channels > 0 => {
            let operands = [unwrap(x), unwrap(weight), unwrap(scale), unwrap(shift)];
            wrap(body((operands, add.map(unwrap)), &FusedConv(options)))
        }
        _ => reference::fused_conv2d(x, weight, [scale, shift], options, add),
    }
}

/// The convolution of a map with the weight, scale and shift, and the summand.
pub(crate) struct FusedConv(FusedConvOptions);

impl Operation for FusedConv {
    type Operands<B: Backend> = ([FloatTensor<B>; 4], Option<FloatTensor<B>>);
    type Results<B: Backend> = FloatTensor<B>;
}

impl<H: HostBackend> Runs<FusedConv> for H {
    fn run(
        (tensors, add): ([FloatTensor<H>; 4], Option<FloatTensor<H>>),
        &FusedConv(options): &FusedConv,
    ) -> FloatTensor<H> {
        let shape @ [n, channels, h, w]: [usize; 4] = tensors[0].shape().dims();
        let [outputs, .., window]: [usize; 4] = tensors[1].shape().dims();
        let out = options.out(shape, window).expect("checked by the caller");
        let (steps, pixels, body) = (channels * window * window, out[0] * out[1], chosen());
        let values = tensors.each_ref().map(elements::<H>);
        let [x, weight, scale, shift] = values.each_ref().map(|of| &**of);
        let add = add.as_ref().map(elements::<H>);
        let rows = rows_of_a_task(outputs, steps * pixels);
        let FusedConvOptions { stride, padding: [top, left, ..], bounds } = options;
        let right = |image: usize| {
            let x = &x[image * channels * h * w..][..channels * h * w];
            let width = body.tile() / 2;
            match [window, stride] {
                [1, 1] => RightMatrix::new(width, (x, pixels), [channels, pixels]),
                _ => {
                    let before = [top, left];
                    let windows = Windows { x, size: [h, w], window, stride, before, out };
                    RightMatrix::im2col(width, &windows)
                }
            }
        };
        let write =
            |right: &RightMatrix<'_>, [image, task]: [usize; 2], y: &mut [MaybeUninit<f32>]| {
                let (first, count) = (task * rows, y.len() / pixels);
                let place = (image * outputs + first) * pixels;
                let job = Gemm {
                    a: (&weight[first * steps..], steps),
                    b: right,
                    rows: count,
                    epilogue: Epilogue::Rows {
                        scale: &scale[first..][..count],
                        shift: &shift[first..][..count],
                        bounds,
                        add: add.as_deref().map(|add| &add[place..][..y.len()]),
                    },
                };
                body.gemm(&job, (y, pixels));
            };
        // SAFETY: a part is whole rows, and a product writes all of them.
        let y = unsafe { in_parts(n, [outputs * pixels, rows * pixels], right, write) };
        drop(values);
        write_like::<H, 4>(&tensors[0], y, [n, outputs, out[0], out[1]])
    }
}
