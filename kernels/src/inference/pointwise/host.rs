//! The convolution of every host backend: the product of the weight with the pixels of each image.

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;

use crate::cpu::buffers::in_parts;
use crate::cpu::epilogue::Epilogue;
use crate::cpu::gemm::{Gemm, Packed};
use crate::cpu::instruction_set::chosen;
use crate::host::{HostBackend, elements, write_like};
use crate::inference::rows_of_a_task;

/// See [`HostTable`](crate::host::HostTable).
pub fn pointwise<B: HostBackend>(
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
