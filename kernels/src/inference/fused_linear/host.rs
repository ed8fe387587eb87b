//! The layer of every host backend.

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;

use super::LinearEpilogue;
use crate::cpu::buffers::in_parts;
use crate::cpu::epilogue::Epilogue;
use crate::cpu::gemm::{Gemm, Packed};
use crate::cpu::instruction_set::chosen;
use crate::host::{HostBackend, elements, write_like};
use crate::inference::rows_of_a_task;

/// See [`HostTable`](crate::host::HostTable).
pub fn fused_linear<B: HostBackend>(
    tensors: [FloatTensor<B>; 3],
    epilogue: LinearEpilogue<FloatTensor<B>, FloatTensor<B>>,
) -> FloatTensor<B> {
    let [n, inputs]: [usize; 2] = tensors[0].shape().dims();
    let (outputs, body) = (tensors[1].shape()[1], chosen());
    let values = tensors.each_ref().map(elements::<B>);
    let [x, weight, bias] = values.each_ref().map(|of| &**of);
    let epilogue = match &epilogue {
        LinearEpilogue::Activation(activation) => LinearEpilogue::Activation(*activation),
        LinearEpilogue::Residual { scale, add } => LinearEpilogue::Residual {
            scale: scale.as_ref().map(elements::<B>),
            add: elements::<B>(add),
        },
    };
    let pack = |_| Packed::new(body.tile() / 2, (weight, outputs), [inputs, outputs]);
    let rows = rows_of_a_task(n, inputs * outputs);
    let y = in_parts(1, [n * outputs, rows * outputs], pack, |packed, [_, task], y| {
        let place = task * rows * outputs;
        let epilogue = match &epilogue {
            LinearEpilogue::Activation(activation) => {
                Epilogue::Columns { bias, activation: *activation }
            }
            LinearEpilogue::Residual { scale, add } => {
                Epilogue::Residual { bias, scale: scale.as_deref(), add: &add[place..][..y.len()] }
            }
        };
        let job = Gemm {
            a: (&x[task * rows * inputs..], inputs),
            b: packed,
            rows: y.len() / outputs,
            epilogue,
        };
        body.gemm(&job, (y, outputs));
    });
    drop(values);
    write_like::<B, 2>(&tensors[0], y, [n, outputs])
}
