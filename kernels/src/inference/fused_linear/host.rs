//! The layer of every host backend.

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;

use super::LinearEpilogue;
use crate::cpu::buffers::in_parts;
use crate::cpu::gemm::{Epilogue, Gemm, Packed};
use crate::cpu::instruction_set::chosen;
use crate::host::{HostBackend, elements, write_like};
use crate::inference::rows_of_a_task;

/// See [`FusedInference`](crate::inference::FusedInference).
pub fn fused_linear<B: HostBackend>(
    tensors: [FloatTensor<B>; 3],
    epilogue: LinearEpilogue<FloatTensor<B>, FloatTensor<B>>,
) -> FloatTensor<B> {
    let [n, inputs]: [usize; 2] = tensors[0].shape().dims();
    let (outputs, body) = (tensors[1].shape()[1], chosen());
    let values = tensors.each_ref().map(elements::<B>);
    let [x, weight, bias] = values.each_ref().map(|of| &**of);
    let residual = match &epilogue {
        LinearEpilogue::Activation(_) => None,
        LinearEpilogue::Residual { scale, add } => {
            Some((scale.as_ref().map(elements::<B>), elements::<B>(add)))
        }
    };
    let pack = |_| Packed::new(body.tile() / 2, (weight, outputs), [inputs, outputs]);
    let rows = rows_of_a_task(n, inputs * outputs);
    let parts = [n * outputs, rows * outputs];
    let y = in_parts(parts[0], parts, pack, |packed, [_, task], y| {
        let place = task * rows * outputs;
        let epilogue = match (&epilogue, &residual) {
            (_, Some((scale, add))) => {
                Epilogue::Residual { bias, scale: scale.as_deref(), add: &add[place..][..y.len()] }
            }
            (LinearEpilogue::Activation(activation), _) => {
                Epilogue::Columns { bias, activation: *activation }
            }
            (LinearEpilogue::Residual { .. }, None) => unreachable!("its values are read above"),
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
